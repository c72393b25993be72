"""The progress of a cluster in its plan, and the next step."""
