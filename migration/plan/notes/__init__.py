"""The notes of waves on pods, quotas and nodes that a wave touches. Pure."""
