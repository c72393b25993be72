"""`drawbridge fix`."""
