"""Builders for the allocator."""
