"""DeviceQuotas: what is wrong with one, and which claims exceed them."""
