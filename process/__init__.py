"""What every process needs: logging, signals, probes, metrics, settings."""
