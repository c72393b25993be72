"""The controllers: templates, compatibility policies, audit, certificates. One replica leads."""

import process.running.startup  # noqa: F401 - before all other imports.
