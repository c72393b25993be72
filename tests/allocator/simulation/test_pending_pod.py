"""The explanation of a pending pod, its sharing among equal pods, and its lack of side effects."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import pytest

from allocator.cluster.cluster import Cluster
from allocator.explain.change import ClosestFit
from allocator.model.feature_gates import Features
from allocator.nodes.idle_resources import IdleResources
from allocator.pods.extended_resource_claim import mapped_resources
from allocator.search.attempt import AllocatorOptions
from allocator.simulation.pending_cause import Cause
from allocator.simulation.pending_pod import (
    MAX_NOTE,
    Explanation,
    PodProjection,
    explain_pending_pod,
    project_pod,
)
from kube.api.core import Node, NodeSpec, NodeStatus, Pod
from kube.api.meta import ObjectMeta, OwnerReference, convert
from kube.api.resource import (
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimTemplate,
    ResourceClaimTemplateSpec,
    ResourceSlice,
)
from kube.names import REQUEST_ANNOTATION
from kube.quantity import Quantity
from testing.allocation.builders import (
    allocated_claim,
    claim,
    classes,
    devices,
    node,
    request,
    result,
    slice_of,
)

GPU = classes()
TEMPLATE = "two"


def pod(name: str = "trainer", *uses: str, **spec: Any) -> Pod:
    """A pod with entries that name claims, or templates: `=template`; entries are a, b and so on."""
    entries = [
        {"name": entry, "resourceClaimTemplateName": use[1:]}
        if use.startswith("=")
        else {"name": entry, "resourceClaimName": use}
        for entry, use in zip("abc", uses, strict=False)
    ]
    document = {
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"resourceClaims": entries, **spec},
    }
    return convert(document, Pod)


def template(count: int = 2) -> ResourceClaimTemplate:
    return ResourceClaimTemplate(
        metadata=ObjectMeta(name=TEMPLATE, namespace="default"),
        spec=ResourceClaimTemplateSpec(spec=claim(request(count=count)).spec),
    )


def by_name(made_values: Sequence[Any]) -> Mapping[tuple[str, str], Any]:
    return {(value.metadata.namespace, value.metadata.name): value for value in made_values}


class World(msgspec.Struct, frozen=True, kw_only=True):
    slices: Sequence[ResourceSlice] = (slice_of(*devices("gpu-0", "gpu-1")),)
    nodes: Sequence[Node] = (node("node-1"),)
    claims: Sequence[ResourceClaim] = ()
    templates: Sequence[ResourceClaimTemplate] = (template(),)
    extended: Mapping[str, str] = {}

    def cluster(self) -> Cluster:
        return Cluster(
            slices=self.slices,
            nodes=self.nodes,
            claims=self.claims,
            classes=GPU,
            options=AllocatorOptions(features=Features()),
        )

    def project(self, asking_pod: Pod) -> PodProjection | None:
        return project_pod(asking_pod, by_name(self.claims), by_name(self.templates), self.extended)

    def answer(self, asking: Pod, cluster: Cluster | None = None) -> Explanation | None:
        looked_pod_projection = self.project(asking)
        assert looked_pod_projection is not None
        return explain_pending_pod(
            cluster or self.cluster(),
            looked_pod_projection,
            GPU,
            self.extended,
            IdleResources().of({entry.metadata.name: entry for entry in self.nodes}),
        )


def held_claim(*names: str) -> ResourceClaim:
    return allocated_claim(*(result(name) for name in names), name="held")


def cordoned_node(name: str) -> Node:
    return Node(metadata=ObjectMeta(name=name), spec=NodeSpec(unschedulable=True))


TRAINER = pod("trainer", f"={TEMPLATE}")


class Row(NamedTuple):
    want: str | None
    name: str
    cluster_world: World
    asking: Pod = TRAINER


ONE_LEFT = World(claims=[held_claim("gpu-0")])
ROWS = (
    Row(None, "there is a place", World()),
    Row(
        "Closest fit: request 1 device (node-1). Fits node-1 unchanged once its devices are free. 1 node: 1/2 devices in use; only 1 suitable device, 2 requested.",
        "in use: both what would do now and what would do later",
        ONE_LEFT,
    ),
    Row(
        "Devices are free on node node-1, but node is unschedulable. 1 node: node is unschedulable.",
        "the devices are free where the pod cannot go",
        World(nodes=[cordoned_node("node-1")]),
    ),
    Row(
        "Closest fit: request 2 devices (node-1). 1 node: only 2 suitable devices, 3 requested. 2 nodes: node is unschedulable.",
        "devices come before nodes, however many",
        World(
            nodes=[node("node-1"), cordoned_node("n2"), cordoned_node("n3")],
            templates=[template(3)],
        ),
    ),
    Row(
        "ResourceClaim default/lost not found.",
        "its claim does not exist",
        World(),
        pod("a", "lost"),
    ),
    Row(
        "ResourceClaimTemplate default/lost not found.",
        "its template does not exist",
        World(),
        pod("a", "=lost"),
    ),
    Row("the cluster has no nodes.", "no nodes", World(nodes=())),
    Row(
        "Devices are free on node node-1, but nodeSelector requires zone=mars. 1 node: nodeSelector requires zone=mars.",
        "a label that no node has",
        World(),
        pod("a", f"={TEMPLATE}", nodeSelector={"zone": "mars"}),
    ),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_answer(row: Row) -> None:
    answer_ = row.cluster_world.answer(row.asking)

    assert row.want == (answer_.note if answer_ is not None else None)


class CauseRow(NamedTuple):
    want: Cause
    name: str
    cluster_world: World
    asking: Pod = TRAINER


def large_pod(cpu: str) -> Pod:
    resources = {"requests": {"cpu": cpu}}
    return pod("large", f"={TEMPLATE}", containers=[{"name": "main", "resources": resources}])


CAUSES = (
    CauseRow(Cause.DEVICES_MISSING, "in use", ONE_LEFT),
    CauseRow(
        Cause.DEVICES_MISSING,
        "in use, and the pod may not go there either",
        World(claims=[held_claim("gpu-0")], nodes=[cordoned_node("node-1")]),
    ),
    CauseRow(
        Cause.NODE_NOT_ELIGIBLE, "free on a cordoned node", World(nodes=[cordoned_node("node-1")])
    ),
    CauseRow(
        Cause.NODE_NOT_ELIGIBLE,
        "free, but no node has the label",
        World(),
        pod("a", f"={TEMPLATE}", nodeSelector={"zone": "mars"}),
    ),
    CauseRow(
        Cause.INSUFFICIENT_RESOURCE, "free on a node without the CPU", World(), large_pod("64")
    ),
    CauseRow(Cause.CLAIM_MISSING, "the claim does not exist", World(), pod("a", "lost")),
)


@pytest.mark.parametrize("row", CAUSES, ids=lambda row: row.name)
def test_the_cause_is_named(row: CauseRow) -> None:
    nodes = [
        msgspec.structs.replace(
            entry, status=NodeStatus(allocatable={"cpu": Quantity(8), "pods": Quantity(110)})
        )
        for entry in row.cluster_world.nodes
    ]
    cluster_world = msgspec.structs.replace(row.cluster_world, nodes=nodes)

    explanation = cluster_world.answer(row.asking)

    assert explanation is not None
    assert row.want == explanation.cause
    if row.want is Cause.INSUFFICIENT_RESOURCE:
        assert explanation.note.startswith("Devices are free on node node-1, but Insufficient cpu:")


def test_a_pod_without_devices_is_looked_at_by_nobody() -> None:
    assert World().project(pod("plain")) is None


def test_an_extended_resource_of_a_class_counts() -> None:
    asking_pod = pod(
        "extended",
        containers=[{"name": "main", "resources": {"requests": {"example.com/gpu": "3"}}}],
    )
    cluster_world = World(extended={"example.com/gpu": "gpu"})
    assert mapped_resources(asking_pod, cluster_world.extended)

    answer_ = cluster_world.answer(asking_pod)

    assert answer_ is not None
    assert "only 2 suitable devices, 3 requested" in answer_.note


@pytest.mark.parametrize(
    ("count", "reason"), [("8", None), ("9", "the pod requests 9, and the node has 8")]
)
def test_a_node_whose_device_plugin_offers_too_few_is_no_place(
    count: str, reason: str | None
) -> None:
    asking_pod = pod(
        "extended",
        containers=[{"name": "main", "resources": {"requests": {"example.com/gpu": count}}}],
    )
    plugin_node = msgspec.structs.replace(
        node("plugin-0"), status=NodeStatus(allocatable={"example.com/gpu": Quantity("8")})
    )
    cluster_world = World(nodes=(node("node-1"), plugin_node), extended={"example.com/gpu": "gpu"})

    answer_ = cluster_world.answer(asking_pod)

    assert (answer_ is None) == (reason is None)
    if answer_ is not None:
        assert f"1 node: Insufficient example.com/gpu: {reason}" in answer_.note
        assert "Closest fit: request 2 devices (node-1)" in answer_.note


TRANSLATED = ObjectMeta(
    name="trainer", namespace="default", annotations={REQUEST_ANNOTATION: "{}", "other": "text"}
)


def test_the_closest_fit_of_a_translated_pod_says_that_it_is_in_the_units_of_its_claim() -> None:
    translated = msgspec.structs.replace(TRAINER, metadata=TRANSLATED)
    cluster_world = World(claims=[held_claim("gpu-0")], templates=[template(3)])

    answer_ = cluster_world.answer(translated)

    assert answer_ is not None
    assert answer_.note.startswith(
        "Closest fit in the claim's units: request 1 device (node-1). "
        "Once devices are free, in the claim's units: request 2 devices (node-1). "
    )


def test_the_closest_fit_of_a_translated_pod_is_in_its_keys_where_they_are_known() -> None:
    translated = msgspec.structs.replace(TRAINER, metadata=TRANSLATED)
    pod_projection = ONE_LEFT.project(translated)
    assert pod_projection is not None

    def in_keys(fit: ClosestFit) -> ClosestFit:
        words = [f"write example.com/gpu: {change.amount}" for change in fit.changes]
        return msgspec.structs.replace(fit, fix_in_keys="".join(words))

    answer_ = explain_pending_pod(ONE_LEFT.cluster(), pod_projection, GPU, {}, reword=in_keys)

    assert answer_ is not None
    assert "Closest fit: write example.com/gpu: 1. " in answer_.note
    assert {("default", "a"): 0} == pod_projection.entries


def test_pods_with_equal_claims_of_other_keys_are_told_apart() -> None:
    def key(record: str) -> bytes:
        annotations = {REQUEST_ANNOTATION: record}
        metadata = msgspec.structs.replace(TRANSLATED, annotations=annotations)
        pod_projection = World().project(msgspec.structs.replace(TRAINER, metadata=metadata))
        assert pod_projection is not None
        assert annotations == pod_projection.pod.metadata.annotations
        return pod_projection.key

    assert key("hami") != key("koordinator")
    assert key("hami") == key("hami")


def test_replicas_get_the_same_explanation() -> None:
    """Also once their claims exist, with names that are different for each."""
    first, second = (pod(name, f"={TEMPLATE}") for name in ("first", "second"))
    of_second = msgspec.structs.replace(
        claim(request(count=2), name="second-a"),
        metadata=ObjectMeta(name="second-a", namespace="default"),
    )

    looks = ONE_LEFT.project(first), World(claims=[*ONE_LEFT.claims, of_second]).project(second)

    assert looks[0] == looks[1]


def test_replicas_whose_allocated_claims_are_reserved_for_them_are_explained_once() -> None:
    def key(name: str) -> bytes:
        claim_ = allocated_claim(result("gpu-0"), name=f"{name}-a", namespace="default")
        consumer = ResourceClaimConsumerReference(resource="pods", name=name, uid=name)
        assert claim_.status is not None
        status = msgspec.structs.replace(claim_.status, reserved_for=(consumer,))
        owner = OwnerReference(kind="Pod", name=name, uid=name, controller=True)
        metadata = msgspec.structs.replace(claim_.metadata, owner_references=(owner,))
        own = msgspec.structs.replace(claim_, metadata=metadata, status=status)
        projection = World(claims=[own]).project(pod(name, f"={TEMPLATE}"))
        assert projection is not None
        assert projection.claims[0].status is not None
        return projection.key

    assert key("first") == key("second")


@pytest.mark.parametrize(
    "other",
    [
        pod("first", f"={TEMPLATE}", nodeSelector={"a": "b"}),
        pod("first", f"={TEMPLATE}", tolerations=[{"operator": "Exists"}]),
        pod("first", f"={TEMPLATE}", f"={TEMPLATE}"),
    ],
)
def test_what_differs_in_what_counts_is_told_apart(other: Pod) -> None:
    pod_projection, another = World().project(pod("first", f"={TEMPLATE}")), World().project(other)

    assert pod_projection is not None
    assert another is not None
    assert pod_projection.key != another.key


def test_asking_changes_nothing() -> None:
    cluster = World().cluster()
    before = cluster.usage

    assert World().answer(pod("a", f"={TEMPLATE}"), cluster) is None
    assert before == cluster.usage
    assert World().answer(pod("b", f"={TEMPLATE}"), cluster) is None


def test_numbers_make_no_other_kind() -> None:
    def explanation_with(count: int) -> Explanation:
        slices = [slice_of(*devices(*(f"gpu-{number}" for number in range(count))))]
        answer_ = World(slices=slices, templates=[template(8)]).answer(pod("a", f"={TEMPLATE}"))
        assert answer_ is not None
        return answer_

    assert explanation_with(2).kind == explanation_with(3).kind
    assert explanation_with(2).note != explanation_with(3).note
    answer_ = World(nodes=[cordoned_node("node-1")]).answer(pod("a", f"={TEMPLATE}"))
    assert answer_ is not None
    assert answer_.kind != explanation_with(2).kind


def test_a_note_is_no_longer_than_an_event_holds() -> None:
    sizes = range(1, 32)
    slices = [
        slice_of(*devices(*(f"gpu-{number}" for number in range(size))), pool=f"node-{size}")
        for size in sizes
    ]
    cluster_world = World(
        slices=slices, nodes=[node(f"node-{size}") for size in sizes], templates=[template(32)]
    )

    answer_ = cluster_world.answer(TRAINER)

    assert answer_ is not None
    assert len(answer_.note.encode()) <= MAX_NOTE
    assert answer_.note.startswith("Closest fit: ")
    assert answer_.note.endswith(" more groups.")


def test_names_of_other_namespaces_are_not_shown() -> None:
    foreign = msgspec.structs.replace(
        held_claim("gpu-0", "gpu-1"), metadata=ObjectMeta(name="secret", namespace="hidden")
    )

    answer_ = World(claims=[foreign]).answer(pod("a", f"={TEMPLATE}"))

    assert answer_ is not None
    assert "secret" not in answer_.note
    assert "hidden" not in answer_.note


def test_asking_for_an_extended_resource_changes_nothing() -> None:
    asking_pod = pod(
        "extended",
        containers=[{"name": "main", "resources": {"requests": {"example.com/gpu": "2"}}}],
    )
    cluster_world = World(extended={"example.com/gpu": "gpu"})
    cluster = cluster_world.cluster()
    before = cluster.usage

    assert cluster_world.answer(asking_pod, cluster) is None
    assert before == cluster.usage
