"""The settings that all controllers share."""
