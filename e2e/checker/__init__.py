"""The checker of a migration: it reads what an API server showed, and imports nothing of the product."""
