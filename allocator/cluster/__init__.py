"""The allocation verdicts of a whole cluster: equivalence classes of nodes, cached verdicts."""
