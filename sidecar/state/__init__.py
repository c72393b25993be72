"""What the sidecar knows of the cluster, kept up to date."""
