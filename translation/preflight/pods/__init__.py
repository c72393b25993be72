"""Checks of a pod's manifest beside its translation; one per file. Pure."""
