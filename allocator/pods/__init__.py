"""What a pod needs: its claims, the claim for its extended resources, the nodes that take it."""
