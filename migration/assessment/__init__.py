"""The assessment of a whole cluster before its migration: future claims, losses and blockers."""
