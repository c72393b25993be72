"""The requests of pods, workloads and quotas, read through the vocabularies."""
