"""Writes of claims as values: promised, written and unsettled allocations. Pure."""
