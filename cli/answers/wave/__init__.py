"""How far a cluster is in its plan, and what comes next. Pure."""
