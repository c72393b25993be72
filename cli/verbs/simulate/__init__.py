"""`drawbridge simulate`."""
