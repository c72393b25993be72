"""The node driver: what the scheduler allocated on this node becomes devices inside containers."""

import process.startup  # noqa: F401 - before all other imports.
