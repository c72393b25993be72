"""Stories on a real cluster, and the parts that start one."""
