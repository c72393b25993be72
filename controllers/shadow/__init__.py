"""Mode Shadow: one event per workload about what would become of its pods."""
