"""The needs of a pod: its claims, the claim for its extended resources, its eligible nodes."""
