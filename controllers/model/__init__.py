"""What all controllers share: their settings."""
