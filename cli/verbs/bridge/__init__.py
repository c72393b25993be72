"""`drawbridge bridge`."""
