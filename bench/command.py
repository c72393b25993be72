"""The command line on the snapshot of a large cluster: from its start to its answer, files included.

40,000 devices on 5,000 nodes, in a JSON List of tens of megabytes as kubectl prints it. There is no
anchor: nothing else answers this question from a file.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.report import Result, below
from testing.oracle import workloads

NODES: Final = 5_000
ROUNDS: Final = 3
GOAL_S: Final = 3.0

DRA: Final = "resource.k8s.io/v1"
KINDS: Final = {
    "slices": (DRA, "ResourceSlice"),
    "classes": (DRA, "DeviceClass"),
    "allocated": (DRA, "ResourceClaim"),
    "nodes": ("v1", "Node"),
}


def measure() -> Iterator[Result]:
    """Yield the durations of the command."""
    scenario = workloads.free(NODES)
    objects = [
        {"apiVersion": api_version, "kind": kind, **document}
        for name, (api_version, kind) in KINDS.items()
        for document in scenario[name]
    ]
    claims = [{"apiVersion": DRA, "kind": "ResourceClaim", **claim} for claim in scenario["claims"]]
    with tempfile.TemporaryDirectory() as folder:
        state = _write_manifest(Path(folder, "cluster.json"), objects)
        manifest = _write_manifest(Path(folder, "claims.json"), claims)
        call = ["simulate", "-f", str(manifest), "--snapshot", str(state), "-o", "json"]
        seconds = median(_seconds(call) for _ in range(ROUNDS))
        name = f"drawbridge simulate on a snapshot of {NODES:,} nodes as JSON, in s"
        yield below(name, seconds, GOAL_S)


def _write_manifest(file: Path, objects: list[Any]) -> Path:
    list_document = {"apiVersion": "v1", "kind": "List", "items": objects}
    file.write_text(json.dumps(list_document, indent=4), encoding="utf-8")
    return file


def _seconds(call: list[str]) -> float:
    begin = time.perf_counter()
    process = subprocess.run(
        [sys.executable, "-m", "cli", *call], capture_output=True, check=False, timeout=120
    )
    if process.returncode not in {0, 1}:
        raise RuntimeError(process.stderr.decode())
    return time.perf_counter() - begin
