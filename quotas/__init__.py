"""Kubernetes' quotas as values: the pods that a quota counts, and what claims and pods use of it. Pure."""
