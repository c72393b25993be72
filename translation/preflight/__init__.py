"""Checks of a pod before it is translated: reasons to leave it alone, and conflicts with the cluster. Pure."""
