"""`drawbridge replay`."""
