"""The sidecar's information for people: metrics, events, status, debug pages."""
