"""Attackers, each with the rights of one who may reach a cluster: `make attack`, and `make soak` beside its faults."""
