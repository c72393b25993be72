"""Scenarios for the real Go packages, and the comparison with them."""
