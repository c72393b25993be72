"""What the sidecar decides, as functions from values to values."""
