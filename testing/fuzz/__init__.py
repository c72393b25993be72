"""Hostile reviews through the real endpoint: `make fuzz`."""
