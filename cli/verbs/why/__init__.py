"""`drawbridge why`."""
