"""`drawbridge completion`."""
