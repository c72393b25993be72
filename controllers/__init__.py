"""The controllers: templates, compatibility policies, audit, certificates. One replica leads."""

import process.startup  # noqa: F401 - before all other imports.
