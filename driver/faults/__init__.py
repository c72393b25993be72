"""Sources of faults of devices. Each is a file of its own and knows no other."""
