"""The node driver: what the scheduler allocated on this node becomes devices inside containers."""
