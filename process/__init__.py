"""The common base of all processes: logging, signals, probes, metrics, settings."""
