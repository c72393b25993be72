"""The table of rules, their execution, and their conversion to admission policies."""
