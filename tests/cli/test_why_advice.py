"""Advice of `drawbridge why` that is proved on the changed pod: the container and the amount, the toleration."""

from typing import Any

import pytest

from kube.manifests.dump import dump_yaml
from testing.command import drawbridge
from testing.documents import Document
from testing.questions import advice
from testing.simulated_cluster import claim, device_class, node, slice_of, using

ONE = claim("one")
GPU = {"name": "gpu-0"}


def requesting(name: str, cpu: str, **fields: Any) -> Document:
    return {"name": name, "image": name, "resources": {"requests": {"cpu": cpu}}, **fields}


def with_cpu(cpu: str) -> tuple[Document, ...]:
    return (node("a") | {"status": {"allocatable": {"cpu": cpu, "pods": "9"}}}, slice_of("a", GPU))


SIDECAR = requesting("syncer", "6", restartPolicy="Always")


@pytest.mark.parametrize(
    ("containers", "init_containers", "change"),
    [
        (
            [requesting("server", "20")],
            [SIDECAR],
            "request cpu 17500m or less in container server (init container syncer takes 6)",
        ),
        (
            [requesting("server", "24"), requesting("proxy", "2")],
            [],
            "request cpu 21500m or less in container server (container proxy takes 2)",
        ),
        (
            [requesting("server", "4")],
            [requesting("fetch", "30")],
            "request cpu 23500m or less in init container fetch",
        ),
        (
            [requesting("left", "20"), requesting("right", "20")],
            [],
            "request cpu 3500m or less in container left (container right takes 20)",
        ),
        (
            [requesting("left", "30"), requesting("right", "30")],
            [],
            "request cpu 23500m or less in all containers together (container left 30, container right 30)",
        ),
    ],
    ids=["a sidecar", "two containers", "an init container", "two equal ones", "none alone"],
)
def test_the_container_to_change_is_named_with_what_the_others_take(
    containers: list[Document], init_containers: list[Document], change: str
) -> None:
    pod = using("pending", "one", containers=containers, initContainers=init_containers)

    assert advice(pod, ONE, nodes=with_cpu("23500m")) == [
        f"{change} to get node a, where devices are free"
    ]


def test_the_amount_of_the_named_container_is_enough() -> None:
    pod = using(
        "pending", "one", containers=[requesting("server", "17500m")], initContainers=[SIDECAR]
    )

    assert advice(pod, ONE, nodes=with_cpu("23500m")) == []


TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
KEY = "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("toleration", "change"),
    [
        (
            {"key": KEY, "operator": "Equal", "value": "true", "effect": "NoSchedule"},
            'write value "present" for "true", or operator Exists without a value, in the toleration of nvidia.com/gpu',
        ),
        (
            {"key": KEY, "value": "true"},
            'write value "present" for "true", or operator Exists without a value, in the toleration of nvidia.com/gpu',
        ),
        (
            {"key": KEY, "operator": "Exists", "effect": "NoExecute"},
            "write effect NoSchedule for NoExecute in the toleration of nvidia.com/gpu",
        ),
        (
            {"key": "other", "operator": "Exists", "effect": "NoSchedule"},
            "tolerate taint nvidia.com/gpu=present:NoSchedule",
        ),
        (
            {"key": KEY, "operator": "Equal", "value": "true", "effect": "NoExecute"},
            "tolerate taint nvidia.com/gpu=present:NoSchedule",
        ),
    ],
    ids=["value", "any effect", "effect", "another key", "value and effect"],
)
def test_a_toleration_that_is_nearly_right_is_corrected(toleration: Document, change: str) -> None:
    nodes = (node("a", taints=[TAINT]), slice_of("a", GPU))

    (sentence,) = advice(using("pending", "one", tolerations=[toleration]), ONE, nodes=nodes)

    assert sentence.startswith(f"{change} to get node a, where devices are free")


def test_a_toleration_that_another_taint_needs_is_left_alone() -> None:
    toleration = {"key": KEY, "operator": "Equal", "value": "spot", "effect": "NoSchedule"}
    taints = [TAINT, TAINT | {"value": "spot"}]
    nodes = (node("a", taints=taints), slice_of("a", GPU))

    (sentence,) = advice(using("pending", "one", tolerations=[toleration]), ONE, nodes=nodes)

    assert sentence.startswith("tolerate taint nvidia.com/gpu=present:NoSchedule to get node a")


def test_of_tainted_nodes_those_with_free_devices_come_first_and_apart() -> None:
    names = ("a-empty", "node-c", "node-d", "z-empty")
    state = (
        device_class(),
        *(node(name, taints=[TAINT]) for name in names),
        slice_of("node-c"),
        slice_of("node-d", GPU),
        using("pending", "big"),
        claim("big", 2),
    )

    result = drawbridge(
        *("why", "pod", "pending", "-n", "team", "--snapshot", "-"), stdin=dump_yaml(state)
    )

    rows = [line.split(maxsplit=1) for line in result.stdout.splitlines()]
    assert [row[1] for row in rows if row[:1] == ["on"]] == ["node-c", "a-empty, node-d, z-empty"]
    assert result.stdout.count("no free devices that the pod requests [noDevices]") == 1
