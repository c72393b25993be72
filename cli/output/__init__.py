"""Answers as text, JSON, SARIF and diffs."""
