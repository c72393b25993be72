"""Fakes of what surrounds the sidecar."""
