"""The readiness of a claim's devices, and the nodes that they keep a pod from."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kube.api.core import Node
from kube.api.meta import ObjectMeta, convert
from kube.api.resource import ResourceClaim
from sidecar.commit.binding import Binding, binding_rejection, binding_state
from sidecar.model.rejections import Code
from sidecar.plan.node_limits import limits_nodes

ALLOCATED_AT = datetime(2026, 11, 21, tzinfo=UTC)
DEVICE = {"driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0"}
CONDITIONS = {"bindingConditions": ["Attached"], "bindingFailureConditions": ["Broken"]}
SINCE = "2026-11-21T00:00:00Z"
IN_TIME, TOO_LATE = ALLOCATED_AT, ALLOCATED_AT + timedelta(seconds=1)
"""Cutoffs."""


def claim(*true: str, timestamp: str = SINCE, has_conditions: bool = True) -> ResourceClaim:
    """A claim with a device of these conditions, if it has to be waited for."""
    result = {"request": "req-0", **DEVICE, **(CONDITIONS if has_conditions else {})}
    report = [{"type": type_, "status": "True"} for type_ in true]
    allocation: dict[str, Any] = {"devices": {"results": [result]}}
    if timestamp:
        allocation["allocationTimestamp"] = timestamp
    document = {
        "metadata": {"name": "gpu", "namespace": "default"},
        "status": {"allocation": allocation, "devices": [{**DEVICE, "conditions": report}]},
    }
    return convert(document, ResourceClaim)


PENDING = claim()
NO_DEVICES = ResourceClaim(metadata=ObjectMeta(name="gpu"))


@pytest.mark.parametrize(
    ("name", "claims", "cutoff", "want"),
    [
        ("nothing to wait for", [claim(has_conditions=False)], TOO_LATE, Binding.READY),
        ("no claim", [], TOO_LATE, Binding.READY),
        ("its driver has not said yes", [PENDING], IN_TIME, Binding.PENDING),
        ("nor in time", [PENDING], TOO_LATE, Binding.TIMED_OUT),
        ("what is promised has no time", [claim(timestamp="")], TOO_LATE, Binding.PENDING),
        ("ready, however long ago", [claim("Attached")], TOO_LATE, Binding.READY),
        ("failed", [claim("Broken")], IN_TIME, Binding.FAILED),
        ("failed, although ready", [claim("Attached", "Broken")], IN_TIME, Binding.FAILED),
        ("one of two waits", [claim("Attached"), PENDING], IN_TIME, Binding.PENDING),
        ("a failure counts more", [PENDING, claim("Broken")], TOO_LATE, Binding.FAILED),
        ("deallocated meanwhile", [PENDING, NO_DEVICES], IN_TIME, Binding.GONE),
        ("deleted meanwhile", [None], IN_TIME, Binding.GONE),
    ],
)  # fmt: skip
def test_binding_state(
    name: str, claims: list[ResourceClaim | None], cutoff: datetime, want: Binding
) -> None:
    assert binding_state(claims, cutoff=cutoff) is want, name


@pytest.mark.parametrize(
    ("state", "want"),
    [
        (Binding.READY, None),
        (Binding.PENDING, None),
        (Binding.TIMED_OUT, Code.BINDING_FAILED),
        (Binding.FAILED, Code.BINDING_FAILED),
        (Binding.GONE, Code.DEVICES_GONE),
    ],
)
def test_the_end_of_the_wait_has_a_reason(state: Binding, want: Code | None) -> None:
    rejection = binding_rejection(state)

    assert (None if rejection is None else rejection.code) == want


@pytest.mark.parametrize(
    ("name", "claim", "cutoff", "want"),
    [
        ("ready devices stay", claim("Attached"), TOO_LATE, False),
        ("so do those that may become ready", PENDING, IN_TIME, False),
        ("those that did not in time are released", PENDING, TOO_LATE, True),
        ("so are those that failed", claim("Broken"), IN_TIME, True),
        ("nothing is allocated", NO_DEVICES, TOO_LATE, False),
    ],
)
def test_a_claim_with_binding_conditions_is_released_once_it_is_of_no_use(
    name: str, claim: ResourceClaim, cutoff: datetime, want: bool
) -> None:
    nodes = [Node(metadata=ObjectMeta(name="node-1"))]

    assert limits_nodes(claim, nodes, cutoff=cutoff) is want, name
