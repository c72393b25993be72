"""PodGroups for gangs of other schedulers."""
