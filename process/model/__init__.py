"""What every process shares as values: settings and durations."""
