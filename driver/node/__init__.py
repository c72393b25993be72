"""What the driver keeps on the node: checkpoint, lock, CDI specs, and which boot it is."""
