"""The AllocatorOwnership: faults of the settings of owned drivers and their pools of nodes."""
