"""The values of the allocator: devices, pools, usage, requests, node selection."""
