"""Certificates and keys as a cluster stores them."""
