"""`drawbridge assess`."""
