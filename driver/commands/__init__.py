"""The commands of `python -m driver`: run, slices, state."""
