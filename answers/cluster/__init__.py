"""Answers about a cluster: devices, consumers, the bridge, pending pods."""
