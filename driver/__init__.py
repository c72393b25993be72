"""The node driver: what the scheduler allocated on this node becomes devices inside containers."""

import process.running.startup  # noqa: F401 - before all other imports.
