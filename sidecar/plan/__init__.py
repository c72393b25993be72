"""The decisions of the sidecar, as functions from values to values."""
