"""A migration that is tried on simulated nodes: what is taken over of a cluster, and what was seen. Pure."""
