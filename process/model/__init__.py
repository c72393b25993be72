"""The values that all processes share: settings and durations."""
