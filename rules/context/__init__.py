"""What a rule is, and what it sees: the cluster, its inventory, and the evidence of both."""
