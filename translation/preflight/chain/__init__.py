"""The order of the preconditions and of the preflight checks. Pure."""
