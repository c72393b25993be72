"""Kubernetes' quotas as values: the pods that count, and the usage of claims and pods. Pure."""
