"""The writes of claims, done."""
