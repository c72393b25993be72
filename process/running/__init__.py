"""The life of a process: command, logs, signals, leader election."""
