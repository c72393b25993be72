"""The values that preconditions and preflight checks read, and the types of both. Pure."""
