"""A certificate authority and its serving certificates; knows no Kubernetes type."""
