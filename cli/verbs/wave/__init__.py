"""`drawbridge wave`."""
