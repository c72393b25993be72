"""Certificate authority and caBundles."""
