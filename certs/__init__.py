"""A certificate authority, and serving certificates that it signs. Knows no Kubernetes type."""
