"""Finds out which feature gates the API server has on."""
