"""Preconditions: reasons to end the translation of a pod before its keys are read; one per file. Pure."""
