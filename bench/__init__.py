"""Measurements side by side with their anchors, in one run; never a test.

Times drift between machines and minutes, so a claim counts as a ratio of two figures that were
taken alternately on the same machine. `python -m bench --out FILE` writes JSON lines.
"""
