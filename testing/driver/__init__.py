"""Devices, claims and nodes for tests of the node driver."""
