"""Status and events of DeviceCompatibilityPolicies."""
