"""Strategies: preferences between devices and nodes that fit; none affects feasibility."""
