"""DeviceCompatibilityPolicies: compiled rules, pairs of devices, the constraint, matrix and lint."""
