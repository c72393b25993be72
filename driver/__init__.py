"""The node driver: makes the devices that the scheduler allocated available inside containers."""

import process.running.startup  # noqa: F401 - before all other imports.
