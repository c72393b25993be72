"""Checks of a cluster before and after a wave."""
