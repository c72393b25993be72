"""Strategies: preferences between devices and nodes that fit; none decides whether a pod fits."""
