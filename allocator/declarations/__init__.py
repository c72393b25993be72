"""Declarations of groups of pods, in the words of each scheduler."""
