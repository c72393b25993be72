"""DeviceQuotas: the faults of one, and the claims that exceed them."""
