"""Finds out the feature gates that the API server has on."""
