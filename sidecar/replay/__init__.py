"""The decisions of a sidecar, made again from its log and a recording of the cluster."""
