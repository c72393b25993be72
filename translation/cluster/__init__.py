"""What the cluster decides about a translation: drivers, schedulers, classes, networks."""
