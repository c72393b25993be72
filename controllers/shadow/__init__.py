"""Mode Shadow: one event per workload about the would-be effect on its pods."""
