"""Decisions about groups of pods: nodes and devices for all of them, waiting, waking. Pure."""
