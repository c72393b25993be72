"""The checker of a migration: it reads the history of an API server, and imports nothing of the product."""
