"""The observer: explains in events why pods wait for devices; needs neither webhook nor controllers."""

import process.running.startup  # noqa: F401 - before all other imports.
