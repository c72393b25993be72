"""Autoscalers of nodes, queues, other schedulers and priorities beside a plan."""
