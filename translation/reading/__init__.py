"""What is requested: reads pods, workloads and quotas through the vocabularies."""
