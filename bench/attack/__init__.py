"""`make attack`: what attackers cost honest users, and whether it is within bounds."""
