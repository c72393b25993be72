"""Recordings of a cluster: the files that `drawbridge record` writes and a replay reads."""
