"""Decisions about pods with long lists, as long as users like: they take no longer than others."""

import itertools
import time
from typing import Any, Final

import pytest
from msgspec.structs import replace

from kube.api.core import Pod
from kube.api.meta import OwnerReference, convert
from kube.api.resource import ResourceClaim
from kube.cel.scope import BudgetSpent, Meter, evaluating
from sidecar.groups.candidates import FREE_CLAIMS
from sidecar.groups.decide import Attempt, decide
from sidecar.groups.places import Places
from sidecar.model.rejections import Rejection
from sidecar.plan.decisions import Fits, find_nodes
from sidecar.plan.pod_claims import find_claims
from testing.allocation.builders import claim, node, request
from testing.sidecar.groups import group_request, member
from testing.sidecar.snapshots import pod, snapshot

NODES: Final = tuple(node(f"node-{number:02}") for number in range(20))
CLAIMS: Final = 8_000
MAX_CPU_S: Final = 1.5
"""Ten times as much as a slow machine needs; time that grows with the square is more than three seconds."""


def terms(count: int) -> dict[str, Any]:
    """A required node affinity of so many terms; only the last one matches any node."""
    expressions: list[dict[str, Any]] = [
        {"key": f"key-{number}", "operator": "Exists"} for number in range(count - 1)
    ]
    expressions.append({"key": "missing", "operator": "DoesNotExist"})
    selector = {"nodeSelectorTerms": [{"matchExpressions": [one]} for one in expressions]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}


def test_a_long_affinity_is_charged_and_the_next_attempt_gets_further() -> None:
    world = snapshot(claim(request(), name="gpu"), nodes=NODES)
    long_pod = pod("gpu", affinity=terms(2_000))
    attempts = 0
    while True:
        attempts += 1
        looks = itertools.count()
        meter = Meter(is_over=lambda looks=looks: next(looks) >= 6)  # type: ignore[misc]
        try:
            with evaluating(meter=meter):
                outcome = find_nodes(long_pod, world)
        except BudgetSpent:
            assert attempts < len(NODES)
            continue
        if not (isinstance(outcome, Rejection) and outcome.is_unfinished):
            break

    assert attempts > 1
    assert isinstance(outcome, Fits)
    assert len(NODES) == len(outcome.nodes)


@pytest.mark.parametrize(("count", "is_charged"), [(5, False), (100, True)])
def test_what_most_pods_demand_of_a_node_is_free(count: int, *, is_charged: bool) -> None:
    world, meter = snapshot(nodes=NODES), Meter()
    is_eligible = world.eligible_nodes.of(pod(affinity=terms(count)))

    with evaluating(meter=meter):
        assert all(map(is_eligible, NODES))

    assert is_charged == bool(meter.steps)


def test_the_claims_of_a_pod_are_found_in_time_that_grows_with_their_number() -> None:
    owner = OwnerReference(api_version="v1", kind="Pod", name="a", uid="uid-a", controller=True)
    claims: dict[tuple[str, str], ResourceClaim] = {}
    for number in range(CLAIMS):
        made = claim(request(), name=f"claim-{number}")
        metadata = replace(made.metadata, owner_references=(owner,))
        claims["default", f"claim-{number}"] = replace(made, metadata=metadata)
    numbers = range(CLAIMS)
    long_pod = convert(
        {
            "metadata": {"name": "a", "namespace": "default", "uid": "uid-a"},
            "spec": {
                "resourceClaims": [
                    {"name": f"{number}", "resourceClaimTemplateName": "gpu"} for number in numbers
                ]
            },
            "status": {
                "resourceClaimStatuses": [
                    {"name": f"{number}", "resourceClaimName": f"claim-{number}"}
                    for number in numbers
                ]
            },
        },
        Pod,
    )
    began_s = time.process_time()

    found = find_claims(long_pod, claims, {})

    assert time.process_time() - began_s < MAX_CPU_S
    assert not isinstance(found, Rejection)
    assert CLAIMS == len(found.open)


@pytest.mark.parametrize(("count", "is_cut_off"), [(1, False), (FREE_CLAIMS, False), (100, True)])
def test_a_group_of_pods_with_many_claims_is_cut_off_while_they_are_read(
    count: int, *, is_cut_off: bool
) -> None:
    names = [f"claim-{number}" for number in range(count)]
    world = snapshot(*(claim(request(), name=name) for name in names), nodes=NODES[:1])
    request_ = group_request(*(member(f"pod-{number}", *names) for number in range(20)))
    # Nothing but the reading of pods takes as many steps here.
    meter = Meter(is_over=lambda: True)

    with evaluating(meter=meter):
        outcome = decide(request_, world, Attempt())

    assert not isinstance(outcome, Places) or count == 1
    assert is_cut_off == (isinstance(outcome, Rejection) and outcome.is_unfinished)
