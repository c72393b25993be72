"""A replay: pods arrive one by one on a cluster, and a scheduler with a strategy places them."""
