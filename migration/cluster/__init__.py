"""The cluster of a snapshot today: its workloads, nodes, devices and PodDisruptionBudgets. Pure."""
