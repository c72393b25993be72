"""`drawbridge inventory`."""
