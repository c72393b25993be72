"""Files, clusters and settings, read for the commands."""
