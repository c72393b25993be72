"""The scripts of a plan: written and run."""
