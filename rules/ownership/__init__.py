"""The AllocatorOwnership: what is wrong with the settings of owned drivers and their pools of nodes."""
