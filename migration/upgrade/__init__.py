"""What an upgrade of Kubernetes or of Drawbridge would break."""
