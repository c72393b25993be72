"""Values of a plan, and the pods and budgets that it is made of."""
