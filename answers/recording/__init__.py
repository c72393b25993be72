"""Recordings of a cluster: what `drawbridge record` writes, and what a replay reads of it."""
