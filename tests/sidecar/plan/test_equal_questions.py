"""Pods with claims that differ in names, or in configurations that no search reads, ask one question."""

from allocator.cluster.cluster import Cluster
from allocator.search.attempt import AllocatorOptions
from kube.api.core import Pod
from kube.api.meta import convert
from kube.api.resource import ResourceClaim
from sidecar.plan.decisions import Fits, find_nodes
from sidecar.plan.snapshot import Snapshot
from sidecar.plan.waking import question_of
from testing.allocation.builders import (
    DRIVER,
    claim,
    configured_configuration,
    device_class,
    devices,
    node,
    request,
    slice_of,
)


def pod(name: str) -> Pod:
    return convert(
        {
            "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
            "spec": {"resourceClaims": [{"name": "gpu", "resourceClaimName": name}]},
        },
        Pod,
    )


def snapshot(
    *claims: ResourceClaim, uniform_config_drivers: frozenset[str] = frozenset()
) -> Snapshot:
    classes = {"gpu": device_class()}
    options = AllocatorOptions(uniform_config_drivers=uniform_config_drivers)
    return Snapshot(
        cluster=Cluster(
            slices=[slice_of(*devices("gpu-0", "gpu-1"))],
            nodes=[node()],
            claims=(),
            classes=classes,
            options=options,
        ),
        claims={(item.metadata.namespace, item.metadata.name): item for item in claims},
        classes=classes,
        extended_resources={},
        pods={},
        drivers=frozenset({DRIVER}),
    )


FIRST = claim(request("first"), name="a", config=[configured_configuration(value=1)])
RENAMED = claim(request("second"), name="b", config=[configured_configuration(value=2)])
OTHER = claim(request("first", count=2), name="c")


def test_waiting_pods_are_one_question_whatever_the_names_of_their_requests() -> None:
    answered_snapshot = snapshot(FIRST, RENAMED, OTHER)
    first, renamed, other = (question_of(pod(name), answered_snapshot) for name in "abc")

    assert first == renamed
    assert first != other


def test_waiting_pods_are_two_questions_if_co_tenants_have_to_agree() -> None:
    answered_snapshot = snapshot(FIRST, RENAMED, uniform_config_drivers=frozenset({DRIVER}))

    assert question_of(pod("a"), answered_snapshot) != question_of(pod("b"), answered_snapshot)


def test_a_pod_with_other_names_is_answered_without_a_search() -> None:
    answered_snapshot = snapshot(FIRST, RENAMED)
    first = find_nodes(pod("a"), answered_snapshot)
    searched = answered_snapshot.cluster.costs.searched

    assert isinstance(first, Fits)
    assert first == find_nodes(pod("b"), answered_snapshot)
    assert searched == answered_snapshot.cluster.costs.searched
