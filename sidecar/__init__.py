"""The allocator as a service of kube-scheduler: reservations, writes, answers."""
