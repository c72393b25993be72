"""`drawbridge plan`: the DeviceClass for the resource name in HAMi's chart."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from migration.assessment.chart_names import ChartName
from testing import documents
from testing.documents import device, device_class, namespace, node
from testing.migration import GPU, SHARE, hami_node, plugin_node, resource_slice, workload
from testing.plan import Objects, held_objects, planned, prepare, waves

HAMI: Final = "hami-core-gpu.project-hami.io"
NVIDIA: Final = "gpu.nvidia.com"
NEURON: Final = "neuron.aws.com"
NEURON_KEY: Final = "aws.amazon.com/neuron"
TAKEN_BACK: Final = f"kubectl patch deviceclass {HAMI} --type=json"
CHART: Final = device_class(f"device.driver == '{HAMI}'", name=HAMI, extendedResourceName=GPU)
CORDONED: Final = {**plugin_node("gpu-0"), "spec": {"unschedulable": True}}
NAMESPACES: Final = [namespace("team"), namespace("whole")]


def switched(name: str) -> Objects:
    """A node of HAMi that has been switched."""
    labelled = node(name)
    labelled["metadata"]["labels"] = {"pool": "shared"}
    return [labelled, resource_slice(name, HAMI, [f"{name}-0", f"{name}-1"])]


def train(place: str, name: str = "whole") -> Objects:
    """A pod with a whole card of a switched node, and no other."""
    spec: dict[str, Any] = {"nodeSelector": {"pool": "shared"}}
    return workload("train", {GPU: "1"}, [place], namespace=name, **spec)


def neuron_nodes() -> Objects:
    return [node(name, {NEURON_KEY: "4"}, {}, {}) for name in ("inf-0", "inf-1")]


def beside(*more: Mapping[str, Any]) -> Objects:
    """Nodes of HAMi and NVIDIA, with a share."""
    names = ("hami-0", "hami-1")
    nodes = [*map(hami_node, names), plugin_node("gpu-0"), plugin_node("gpu-1")]
    return [*NAMESPACES, *nodes, *workload("share", SHARE, ["hami-0"]), CHART, *more]


@pytest.mark.parametrize(
    ("winner", "users", "own_class", "other_name"),
    [
        (HAMI, ("Deployment/whole/train",), NVIDIA, ""),
        (HAMI, ("Deployment/whole/train",), NVIDIA, "example.com/gpu"),
        (HAMI, ("Deployment/whole/train",), HAMI, ""),
        (HAMI, (), HAMI, ""),
        (NVIDIA, (), NVIDIA, ""),
        ("", (), NVIDIA, "example.com/gpu"),
    ],
)
def test_a_name_goes_to_one_class(
    winner: str, users: tuple[str, ...], own_class: str, other_name: str
) -> None:
    name = ChartName(
        resource=GPU, chart_class=HAMI, own_class=own_class, users=users, other_name=other_name
    )

    assert winner == name.winner


def test_a_name_of_pods_on_switched_nodes_stays_with_their_class(tmp_path: Path) -> None:
    """`prepare.sh` took it from them, since a node of NVIDIA was there."""
    legacy = [hami_node(f"hami-{number}") for number in (1, 3, 4)]
    share = workload("share", SHARE, ["hami-1"])
    objects = [*NAMESPACES, *switched("hami-0"), *legacy, CORDONED, *train("hami-0"), *share, CHART]

    plan = planned(tmp_path, objects)

    assert {"hami-1", "hami-3", "hami-4"} == {name for names, _ in waves(plan) for name in names}
    assert {GPU: HAMI} == plan["mappedClasses"]
    assert TAKEN_BACK not in prepare(tmp_path)


@pytest.mark.parametrize("place", ["gpu-0", ""])
def test_nodes_of_another_driver_wait_while_pods_on_switched_nodes_use_the_name(
    tmp_path: Path, place: str
) -> None:
    """The class lost the name, no node served these pods any more, and nothing said so."""
    nodes = [*switched("hami-0"), plugin_node("gpu-0"), plugin_node("gpu-1")]
    web = workload("web", {GPU: "1"}, [place]) if place else []

    plan = planned(tmp_path, [*NAMESPACES, *nodes, *train("hami-0"), *web, CHART])

    assert [] == waves(plan)
    assert {GPU: HAMI} == plan["mappedClasses"]
    assert [] == plan["wideMappings"]
    assert TAKEN_BACK not in prepare(tmp_path)
    held = held_objects(plan)
    assert {"Node//gpu-0", "Node//gpu-1"} == set(held)
    words = f"pods of Deployment/whole/train run on switched nodes with {GPU} of DeviceClass {HAMI}"
    assert all(words in reason for reason in held.values())


@pytest.mark.parametrize(
    ("kind", "place", "is_named"),
    [("gpu", "hami-0", True), ("mig", "hami-0", False), ("gpu", "gpu-1", False)],
    ids=["GPUs", "MIG devices alone", "no pod on a switched node"],
)
def test_switched_nodes_of_another_driver_are_named_while_pods_use_its_name(
    tmp_path: Path, kind: str, place: str, *, is_named: bool
) -> None:
    """The plan counted their devices, and no new pod with the name could use them."""
    own = device_class(f"device.driver == '{NVIDIA}'", name=NVIDIA, extendedResourceName=GPU)
    own["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    chart = {**CHART, "metadata": {**CHART["metadata"]}}
    chart["metadata"]["creationTimestamp"] = "2026-02-01T00:00:00Z"
    gpu = device(attributes={"type": {"string": kind}, "uuid": {"string": "GPU-own"}})
    published = documents.resource_slice(gpu, driver=NVIDIA, node="gpu-0", name="slice-gpu-0")
    nodes = [*switched("hami-0"), node("gpu-0"), published, plugin_node("gpu-1")]
    users = workload("train", {GPU: "1"}, [place], namespace="whole")

    plan = planned(tmp_path, [*NAMESPACES, *nodes, *users, own, chart])

    reason = held_objects(plan).get(f"DeviceClass//{HAMI}", "")
    assert is_named is (
        f"no new pod with the name can use gpu-0, though DeviceClass {NVIDIA}" in reason
    )
    assert is_named is ("Deployment/whole/train" in reason)
    assert {GPU: HAMI if place == "hami-0" else NVIDIA} == plan["mappedClasses"]


def test_nodes_without_the_name_are_switched_beside_pods_that_use_it(tmp_path: Path) -> None:
    """The preflight did not check that HAMi's class keeps the name."""
    infer = workload("infer", {NEURON_KEY: "1"}, ["inf-0"], namespace="whole")
    nodes = [*switched("hami-0"), CORDONED, *neuron_nodes()]

    plan = planned(tmp_path, [*NAMESPACES, *nodes, *infer, *train("hami-0"), CHART])

    assert {"inf-0", "inf-1"} == {name for names, _ in waves(plan) for name in names}
    assert {GPU: HAMI, NEURON_KEY: NEURON} == plan["mappedClasses"]


def test_a_namespace_moves_as_a_whole_where_a_class_keeps_the_name(tmp_path: Path) -> None:
    """It was held, since no class mapped the name, though HAMi's class did."""
    nodes = [*switched("hami-0"), *switched("hami-2"), CORDONED]
    pods = [*workload("share", SHARE, ["hami-0"]), *train("hami-2", "team")]

    plan = planned(tmp_path, [*NAMESPACES, *nodes, *pods, CHART])

    assert [([], ["team"])] == waves(plan)
    assert {"Node//gpu-0"} == set(held_objects(plan))
    assert {GPU: HAMI} == plan["mappedClasses"]


@pytest.mark.parametrize("place", ["gpu-0", ""], ids=["on a plugin's node", "pending"])
def test_a_name_is_taken_back_for_pods_that_stay_with_their_plugin(
    tmp_path: Path, place: str
) -> None:
    """The namespace was held, since no class mapped the name, and HAMi's class kept it."""
    nodes = [*switched("hami-0"), *switched("hami-2"), CORDONED]
    pods = [*workload("share", SHARE, ["hami-0"]), *workload("web", {GPU: "1"}, [place])]

    plan = planned(tmp_path, [*NAMESPACES, *nodes, *pods, CHART])

    assert {} == plan["mappedClasses"]
    assert bool(place) is (TAKEN_BACK in prepare(tmp_path))
    assert bool(place) is ("Namespace//team" in held_objects(plan))


@pytest.mark.parametrize("has_chart", [False, True])
def test_a_name_with_an_amount_of_0_gets_its_own_class_beside_a_chart(
    tmp_path: Path, *, has_chart: bool
) -> None:
    """A second plan left it to HAMi's class."""
    infer = workload("infer", {GPU: "0", NEURON_KEY: "1"}, ["inf-0"], namespace="whole")
    objects = [entry for entry in beside(*neuron_nodes(), *infer) if has_chart or entry != CHART]

    plan = planned(tmp_path, objects)

    assert {GPU: NVIDIA, NEURON_KEY: NEURON} == plan["mappedClasses"]
    assert TAKEN_BACK in prepare(tmp_path)


def test_a_class_that_maps_another_name_gets_none(tmp_path: Path) -> None:
    """`prepare.sh` stopped at the class after it had taken the name from HAMi's."""
    own = device_class(
        f"device.driver == '{NVIDIA}'", name=NVIDIA, extendedResourceName="example.com/gpu"
    )
    web = workload("web", {GPU: "1"}, ["gpu-0"], namespace="whole")

    plan = planned(tmp_path, beside(*web, own))

    assert {} == plan["mappedClasses"]
    assert f"change_object deviceclass/{NVIDIA}" not in prepare(tmp_path)
    assert TAKEN_BACK in prepare(tmp_path)
    assert {"hami-0", "hami-1"} == {name for names, _ in waves(plan) for name in names}
    held = held_objects(plan)
    assert {"Node//gpu-0", "Node//gpu-1"} == set(held)
    assert (
        f"DeviceClass {NVIDIA} maps example.com/gpu, and a class maps one name"
        in held["Node//gpu-0"]
    )


def test_switched_nodes_are_named_where_their_class_maps_another_name(tmp_path: Path) -> None:
    """No new pod with the name could use them, and nothing said so."""
    own = device_class(
        f"device.driver == '{NVIDIA}'", name=NVIDIA, extendedResourceName="example.com/gpu"
    )
    gpu = device(attributes={"type": {"string": "gpu"}, "uuid": {"string": "GPU-own"}})
    published = documents.resource_slice(gpu, driver=NVIDIA, node="gpu-9", name="slice-gpu-9")
    web = workload("web", {GPU: "1"}, ["gpu-0"], namespace="whole")

    plan = planned(tmp_path, beside(*web, own, node("gpu-9"), published))

    reason = held_objects(plan)[f"DeviceClass//{NVIDIA}"]
    assert reason.startswith("it maps example.com/gpu")
    assert reason.endswith(f"no new pod with {GPU} can use gpu-9")
