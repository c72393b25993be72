"""Templates of workloads before their pods."""
