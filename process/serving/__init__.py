"""Plain HTTP, probes and metrics of a process, and its connections."""
