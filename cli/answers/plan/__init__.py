"""The plan of a migration: waves of nodes and namespaces, and the checks between them. Pure."""
