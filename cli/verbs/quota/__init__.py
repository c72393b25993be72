"""`drawbridge quota`."""
