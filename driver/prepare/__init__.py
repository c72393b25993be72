"""Claims prepared on this node, one at a time."""
