"""The HTTPS server of admission."""

import process.running.startup  # noqa: F401 - before all other imports.
