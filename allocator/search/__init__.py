"""The search for devices on one node: attempt, bounds, backtracking, allocation results."""
