"""`drawbridge plan`."""
