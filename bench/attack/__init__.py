"""`make attack`: the cost of attackers for honest users, and a check of its bounds."""
