"""Fakes of the surroundings of the sidecar."""
