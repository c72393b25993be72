"""The legacy systems of a cluster today: their plugins, the names that stay with them, and smaller cards in their place. Pure."""
