"""Legacy schedulers, executed on scenarios, and their outcomes, kept for tests without Go."""
