"""Expressions of strangers, evaluated in a process of their own."""
