"""The judge of a migration: reads what an API server showed, and imports nothing of the product."""
