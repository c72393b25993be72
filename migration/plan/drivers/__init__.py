"""The DRA drivers of a plan: their vendors, releases, values, nodes and DaemonSets. Pure."""
