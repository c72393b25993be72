"""`drawbridge demo`."""
