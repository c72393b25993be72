"""The interface of a rule and its input: the cluster, its inventory, and the evidence of both."""
