"""What of a cluster would become claims, what would be lost, and what blocks it. Pure."""
