"""Read-only views of API objects, with upstream's field names."""
