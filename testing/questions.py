"""Calls of `check` and `why`, and devices and events for them."""

import asyncio
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from click.testing import Result

from kube.manifests.dump import dump_yaml
from testing.command import drawbridge
from testing.documents import (
    Document,
)
from testing.fake_api_server import FakeApiServer
from testing.kubeconfig import kubeconfig_of
from testing.simulated_cluster import (
    STATE,
    device_class,
    node,
    slice_of,
)


def run_why(*call: str, state: tuple[Document, ...]) -> Result:
    return drawbridge(
        "why", *call, "-n", "team", "--snapshot", "-", stdin=dump_yaml((*STATE, *state))
    )


def advice(*pods_and_claims: Document, nodes: tuple[Document, ...]) -> list[str]:
    """The advice on the pod `pending`."""
    state = (device_class(), *nodes, *pods_and_claims)
    result = drawbridge(
        *("why", "pod", "pending", "-n", "team", "-o", "json", "--snapshot", "-"),
        stdin=dump_yaml(state),
    )
    assert result.exit_code == 0, result.output
    sentences: list[str] = json.loads(result.stdout)["advice"]
    return sentences


def event(owner: str, note: str, last: str, reason: str = "FailedCreate") -> Document:
    return {
        "metadata": {"name": f"{owner}.{last}", "namespace": "team"},
        "reason": reason,
        "note": note,
        "type": "Warning",
        "regarding": {"kind": "ReplicaSet", "name": owner, "namespace": "team"},
        "deprecatedLastTimestamp": last,
    }


async def why(server: FakeApiServer, folder: Path, *call: str) -> Any:
    connection = (
        "-n",
        "team",
        "--live",
        "--context",
        "here",
        "--kubeconfig",
        kubeconfig_of(server, folder),
    )
    return await asyncio.to_thread(drawbridge, "why", *call, *connection)


def check(*documents: Mapping[str, Any], options: Iterable[object] = ()) -> Result:
    return drawbridge("check", "-f", "-", *options, stdin=dump_yaml(documents))


def answer(*documents: Document, options: Iterable[object] = ()) -> dict[str, Any]:
    result = check(*documents, options=[*options, "-o", "json"])
    assert result.exit_code in (0, 1), result.stderr
    document: dict[str, Any] = msgspec.json.decode(result.stdout)
    return document


def gpu(name: str, **fields: Any) -> Document:
    return {"name": name, "capacity": {"memory": {"value": "80Gi"}}, **fields}


def partition(name: str, mode: str, groups: list[str] | None = None) -> Document:
    consumed: Document = {"counterSet": "gpu-0", "counters": {"memory": {"value": "1"}}}
    if groups is not None:
        consumed["compatibilityGroups"] = groups
    attributes = {"mode": {"string": mode}}
    return {"name": name, "attributes": attributes, "consumesCounters": [consumed]}


def partitions(*devices: Document) -> tuple[Document, ...]:
    pool = {"name": "node-a", "generation": 1, "resourceSliceCount": 2}
    sets = slice_of("node-a", pool=pool)
    sets["metadata"]["name"] = "sets"
    counters = {"name": "gpu-0", "counters": {"memory": {"value": "2"}}}
    sets["spec"] |= {"devices": [], "sharedCounters": [counters]}
    return node("node-a"), sets, slice_of("node-a", *devices, pool=pool)
