"""`drawbridge status`: Drawbridge itself in a cluster."""
