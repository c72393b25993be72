"""The assessment of a cluster: claims to be, losses, and blockers. Pure."""
