"""DeviceQuotas: what claims use of a tenant's amounts, before and after they are allocated."""
