"""The cost of the verdicts about all classes of a cluster."""

import pytest

from allocator.cluster import verdicts
from allocator.cluster.cluster import Cluster
from allocator.model.plan import Plan
from allocator.model.requests import PendingClaims
from allocator.search.attempt import AllocatorOptions
from testing.allocation.builders import claim, classes, devices, node, request, slice_of


def test_a_plan_gets_the_requests_of_the_claims_where_it_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a change nearly all verdicts are known, so the rest decides on the time."""
    assigned: list[Plan] = []
    assign = verdicts.assign_requests

    def counted(plan: Plan, pending: PendingClaims) -> Plan:
        assigned.append(plan)
        return assign(plan, pending)

    monkeypatch.setattr(verdicts, "assign_requests", counted)
    # The classes of nodes differ in their number of devices.
    nodes = [node(f"node-{count}") for count in range(1, 5)]
    slices = [
        slice_of(*devices(*(f"gpu-{number}" for number in range(count))), pool=f"node-{count}")
        for count in range(1, 5)
    ]
    cluster = Cluster(
        slices=slices, nodes=nodes, claims=(), classes=classes(), options=AllocatorOptions()
    )
    list(cluster.class_verdicts(cluster.resolve([claim(request("first"))])))

    found = list(cluster.class_verdicts(cluster.resolve([claim(request("renamed"))])))

    assert [verdict.steps for verdict in found] == [0] * 4
    assert not assigned
    outcome = found[0].outcome
    assert isinstance(outcome, Plan)
    assert [choice.request.name for part in outcome.choices for choice in part] == ["renamed"]
    assert len(assigned) == 1
