"""The table of rules, how they run, and how they become admission policies."""
