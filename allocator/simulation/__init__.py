"""Where pods and claims would go, and why pending pods wait."""
