"""The CPU, memory and other countable resources of nodes and pods, as kube-scheduler counts them."""
