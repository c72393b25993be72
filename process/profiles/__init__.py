"""Driver profiles and translation settings, as processes get them."""
