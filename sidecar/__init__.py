"""The allocator as a service of kube-scheduler: `python -m sidecar`, beside the scheduler plugin."""

import process.running.startup  # noqa: F401 - before all other imports.
