"""Pods that wait behind the gate of DeviceQuotas: what they are charged, and the order in which they get through."""
