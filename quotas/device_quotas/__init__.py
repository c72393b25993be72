"""DeviceQuotas: the use of a tenant's amounts by claims, before and after their allocation."""
