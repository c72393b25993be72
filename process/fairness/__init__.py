"""Whose turn it is: namespaces that wait for the same thing."""
