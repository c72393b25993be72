"""`drawbridge rehearse`."""
