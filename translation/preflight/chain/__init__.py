"""The order of the gates and of the preflight checks. Pure."""
