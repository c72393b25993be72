"""The driver's files on the node: checkpoint, lock, CDI specs; and the id of the boot."""
