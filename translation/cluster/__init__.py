"""The cluster's part in a translation: drivers, schedulers, classes, networks."""
