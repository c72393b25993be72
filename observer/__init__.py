"""The observer: explains pending pods' lack of devices in events; needs neither webhook nor controllers."""

import process.running.startup  # noqa: F401 - before all other imports.
