"""The values that gates and preflight checks read, and the types of both. Pure."""
