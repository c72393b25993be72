"""Pure answers to people's questions: the effect of objects on a cluster, and its present state."""
