"""`drawbridge explain`."""
