"""`drawbridge settings`."""
