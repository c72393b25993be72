"""What the sidecar tells people: metrics, events, status, debug pages."""
