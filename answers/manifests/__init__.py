"""Answers about manifests: translated, checked, placed."""
