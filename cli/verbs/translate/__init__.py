"""`drawbridge translate`."""
