"""Koordinator: shares of GPUs, NICs and FPGAs by extended resources and annotations."""
