"""Whether an installation of Drawbridge is ready, part by part. Pure."""
