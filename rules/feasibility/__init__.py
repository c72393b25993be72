"""Feasibility on the whole inventory: the idle cluster, and the high-water mark."""
