"""A recording as it would have been after a migration at another moment, or to another driver. Pure."""
