"""Preflight checks: conflicts of a pod's claims with the cluster and the pod; one per file. Pure."""
