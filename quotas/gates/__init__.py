"""Pods that wait behind the gate of DeviceQuotas: their charges, and the order of letting them through."""
