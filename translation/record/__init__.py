"""The record in the annotation of a pod: written, read back, derived from and signed."""
