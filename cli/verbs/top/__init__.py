"""`drawbridge top`."""
