"""The plan of a cluster."""
