"""PriorityClasses in files, snapshots and the cluster: they decide on the priority of pods and groups."""

import json
from pathlib import Path
from typing import Any

import pytest

from allocator.declarations.priorities import PriorityClass
from answers.model.redaction import redact
from cli.reading.live import allocation_state
from kube.api.urls import PRIORITY_CLASSES
from kube.manifests.dump import dump_yaml
from kube.manifests.reader import read_objects
from testing.command import EXAMPLES, drawbridge
from testing.documents import Document, api_object
from testing.fake_api_server import FakeApiServer

CLUSTER = EXAMPLES / "groups" / "cluster.yaml"


def ring(*names: str, group_class: str = "") -> list[Document]:
    """Return a PodGroup and its pods, with the names of their PriorityClasses; empty for none."""
    group = api_object("PodGroup", "ring", "default")
    group["spec"] = {"schedulingPolicy": {"gang": {"minCount": len(names)}}}
    if group_class:
        group["spec"]["priorityClassName"] = group_class
    pods = []
    for number, name in enumerate(names):
        spec: Document = {
            "schedulingGroup": {"podGroupName": "ring"},
            "containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10"}],
        }
        if name:
            spec["priorityClassName"] = name
        pods.append(api_object("Pod", f"ring-{number}", "default", spec=spec))
    return [group, *pods]


def priority_class(name: str, value: int, **fields: Any) -> Document:
    return api_object("PriorityClass", name, value=value, **fields)


HIGH = priority_class("high", 1000)
URGENT = priority_class("urgent", 1000)
DEFAULT = priority_class("high", 1000, globalDefault=True)


def answer(verb: str, folder: Path, manifests: list[Document], *classes: Document) -> Any:
    """Return the answer about manifests, with classes in the snapshot."""
    snapshot = folder / "cluster.yaml"
    state = [dict(entry.document) for entry in read_objects(CLUSTER.read_bytes(), "cluster")]
    snapshot.write_text(dump_yaml([*state, *classes]))
    call = (verb, "-f", "-", "--snapshot", snapshot, "-o", "json")
    return json.loads(drawbridge(*call, stdin=dump_yaml(manifests)).stdout)


@pytest.mark.parametrize(
    ("manifests", "classes"),
    [
        (ring("high", "high", group_class="high"), ()),
        (ring("high", "urgent", group_class="high"), (HIGH, URGENT)),
        (ring("", "high"), (DEFAULT,)),
        (ring("", "high", group_class="high"), (DEFAULT,)),
        ([DEFAULT, *ring("high", "")], ()),
    ],
    ids=["one class", "two of one value", "the default", "the group's", "in the manifests"],
)
def test_pods_of_one_priority_are_placed_together(
    manifests: list[Document], classes: tuple[Document, ...], tmp_path: Path
) -> None:
    checked = answer("check", tmp_path, manifests, *classes)
    simulated = answer("simulate", tmp_path, manifests, *classes)

    assert [entry["code"] for entry in checked["findings"]] == []
    assert [group["placed"] for group in simulated["groups"]] == [2]


@pytest.mark.parametrize(
    ("words", "manifests", "classes"),
    [
        (
            '"Pod/default/ring-1" has priority 1000, and PodGroup ring has 0',
            ring("", "high"),
            (HIGH,),
        ),
        (
            '"Pod/default/ring-0" has priority 1000, and PodGroup ring has -1',
            ring("high", "high"),
            (HIGH, priority_class("low", -1, globalDefault=True)),
        ),
        (
            "has priority 2000001000, and ",
            ring("system-cluster-critical", "system-node-critical"),
            (),
        ),
    ],
)
def test_pods_of_two_priorities_are_an_error(
    words: str, manifests: list[Document], classes: tuple[Document, ...], tmp_path: Path
) -> None:
    findings = answer("check", tmp_path, manifests, *classes)["findings"]

    differing = [entry for entry in findings if entry["code"] == "groupPriorityDiffers"]
    assert {entry["severity"] for entry in differing} == {"error"}
    assert words in differing[0]["message"]
    (group,) = answer("simulate", tmp_path, manifests, *classes)["groups"]
    assert (group["placed"], group["code"]) == (0, "groupPriorityDiffers")


async def test_classes_of_a_cluster_are_read() -> None:
    async with FakeApiServer() as server:
        server.put(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 1000})
        async with server.client() as client:
            objects, _ = await allocation_state(client)

    (value,) = [entry.value for entry in objects if isinstance(entry.value, PriorityClass)]
    assert (value.metadata.name, value.value) == ("high", 1000)


def test_a_snapshot_has_classes_without_their_description() -> None:
    kept_class = redact(priority_class("high", 1000, description="of hunter2", globalDefault=True))

    assert (kept_class["value"], kept_class["globalDefault"]) == (1000, True)
    assert "hunter2" not in json.dumps(kept_class)
