"""Quotas of other systems, as quotas that count claims."""
