"""The progress of a migration's waves, as metrics."""
