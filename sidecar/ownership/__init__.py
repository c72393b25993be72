"""The drivers that the bridge owns, and the fence around them. Pure."""
