"""`drawbridge check-upgrade`."""
