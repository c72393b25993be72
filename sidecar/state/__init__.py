"""The sidecar's state of the cluster, kept up to date."""
