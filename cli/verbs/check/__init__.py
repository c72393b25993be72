"""`drawbridge check`."""
