"""`drawbridge version`."""
