"""Writes of claims as values: what is promised, written, and not settled yet. Pure."""
