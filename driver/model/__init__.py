"""Values of the driver: inventories, limits, records of prepared claims, settings."""
