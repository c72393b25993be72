"""`drawbridge record`."""
