"""A cluster followed by informers, as the snapshots that translation, rules and allocator read."""
