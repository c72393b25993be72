"""The waves of a migration, and the checks between them."""
