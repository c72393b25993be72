"""Stored objects against the rules, and the high-water mark of the inventory."""
