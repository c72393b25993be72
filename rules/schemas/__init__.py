"""Opaque parameters of known drivers."""
