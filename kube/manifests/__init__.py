"""Read Kubernetes objects from YAML and JSON, and write them as YAML."""
