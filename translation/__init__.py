"""Legacy device keys of a pod to ResourceClaims: vocabularies, driver profiles, preflight checks. Pure."""
