"""The checks before an upgrade of Kubernetes or of Drawbridge."""
