"""`drawbridge matrix`."""
