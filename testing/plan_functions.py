"""The functions that the scripts of a plan share, each by itself, on a cluster of a few files."""

import subprocess
from pathlib import Path
from typing import Final

from cli.functions.claim_functions import CLAIM_FUNCTIONS
from cli.functions.node_functions import NODE_FUNCTIONS
from cli.functions.pod_functions import POD_FUNCTIONS

CLUSTER: Final = """kubectl() { case "$*" in
  'get node '*) cat noted ;;
  *'get pods '*) if [ -f pods ]; then cat pods; fi ;;
  'get namespace/'*) printf selected ;;
  *spec.template*) if [ -f found ]; then cat found; fi ;;
esac; }
noted() { :; }
context= evict_jobs= most_seconds=0 fewer_seconds=0
evicts() { return 1; }
stopped() { :; }
is_gone() { return 1; }
command() { echo "$*" >> calls; }
"""
"""The answers of kubectl, from the files `noted`, `pods` and `found`; other calls go to `calls`."""


def run_functions(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Run lines of a script after the functions.

    Args:
        folder: The folder in which they run.
        text: The lines.
    """
    functions = NODE_FUNCTIONS + POD_FUNCTIONS + CLAIM_FUNCTIONS
    (folder / "script").write_text(f"set -euo pipefail\n{functions}\n{text}\n")
    return subprocess.run(
        ["bash", "script"], cwd=folder, capture_output=True, text=True, check=False
    )
