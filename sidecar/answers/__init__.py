"""The calls of the scheduler, answered."""
