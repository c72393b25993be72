"""`drawbridge test`."""
