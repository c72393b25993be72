"""Attackers, each with rights that people have: `make attack`, and beside the faults of `make soak`."""
