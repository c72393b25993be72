"""Stories on a real cluster, and what starts one."""
