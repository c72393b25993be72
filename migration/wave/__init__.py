"""How far a cluster is in its plan, and which step is next."""
