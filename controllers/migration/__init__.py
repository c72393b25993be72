"""How far the waves of a migration are, as metrics."""
