"""CEL as the Kubernetes 1.37 device selectors have it, on the CEL project's own engine."""
