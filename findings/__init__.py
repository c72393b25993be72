"""Findings about objects: code, severity, place, message and fix. Pure."""
