"""The move of a cluster to DRA: assessed, planned in waves, gone through. Pure."""
