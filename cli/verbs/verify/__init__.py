"""`drawbridge verify`."""
