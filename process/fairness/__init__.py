"""Turns of namespaces that wait for the same thing."""
