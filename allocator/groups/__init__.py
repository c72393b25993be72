"""The joint decision about a group of pods: nodes and devices for enough of them, or a reason."""
