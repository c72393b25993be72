"""`drawbridge snapshot`."""
