"""Caches and queues as values: nothing here knows Kubernetes."""
