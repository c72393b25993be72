"""Decisions about groups of pods: nodes and devices for all of them, who waits, what a release helps. Pure."""
