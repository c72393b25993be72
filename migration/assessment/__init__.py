"""A whole cluster before its migration: what becomes claims, what is lost, what blocks it."""
