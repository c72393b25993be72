"""Which of several devices, and which of several nodes, a pod gets; never whether it gets any."""
