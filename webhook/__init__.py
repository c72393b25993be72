"""The HTTPS server of admission."""

import process.startup  # noqa: F401 - before all other imports.
