"""Pods that are let through never exceed a limit, and come in the order that a plain loop gives."""

import time
from datetime import UTC, datetime
from typing import Final, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.model.feature_gates import Features
from controllers.quotas.projections import project_quota_claim, project_quota_pod
from kube.api.core import Pod as KubePod
from kube.api.meta import rfc3339
from kube.names import QUOTA_GATE
from quotas.device_quotas.ledger import Stage
from quotas.gates.admission_order import MAX_PASSED_S, decide
from quotas.gates.usage import QuotaUsage
from testing.allocation.builders import (
    allocated_claim,
    claim,
    classes,
    device,
    request,
    result,
    slice_of,
)
from testing.device_quotas import device_limit, quota

pytestmark = pytest.mark.property

NOW: Final = 1_795_000_000.0
ONE: Final = 10**9
DEVICES: Final = 8


class Pod(NamedTuple):
    """A pod that asks for devices.

    Attributes:
        devices: The number of devices.
        age_s: Its age when the history begins.
    """

    devices: int
    age_s: int
    priority: int


PODS: Final = st.builds(
    Pod,
    devices=st.integers(1, 4),
    age_s=st.integers(0, 3) | st.integers(int(MAX_PASSED_S) - 2, int(MAX_PASSED_S) + 2),
    priority=st.integers(0, 1),
)


def world(most: int) -> QuotaUsage:
    usage = QuotaUsage(Features(), time.monotonic)
    usage.replace_quota("team", quota(device_limit(most)))
    usage.replace_namespace("default", {})
    for name, device_class in classes().items():
        usage.replace_class(name, device_class)
    usage.replace_slices({"a": slice_of(*(device(f"gpu-{n}") for n in range(DEVICES)))})
    return usage


def add(usage: QuotaUsage, name: str, pod: Pod, *, is_gated: bool = True) -> None:
    document = msgspec.to_builtins(claim(request(count=pod.devices)), enc_hook=str)
    usage.replace_claim(("default", name), project_quota_claim(msgspec.json.encode(document)))
    usage.replace_pod(("default", name), pod_of(name, pod, is_gated=is_gated))


def pod_of(name: str, pod: Pod, *, is_gated: bool) -> KubePod | None:
    created = rfc3339(datetime.fromtimestamp(NOW - pod.age_s, UTC))
    document = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": name,
            "creationTimestamp": created,
        },
        "spec": {
            "priority": pod.priority,
            "schedulingGates": [{"name": QUOTA_GATE}] if is_gated else [],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
        },
    }
    return project_quota_pod(msgspec.json.encode(document))


def charge(usage: QuotaUsage) -> None:
    for key in tuple(usage.book.outstanding):
        usage.book.charge(key)


def committed(usage: QuotaUsage) -> int:
    (account,) = usage.book.accounts("default")
    return usage.book.ledger.totals(account).committed


def expected_order(pods: dict[str, Pod], left: int, most: int) -> list[str]:
    """Return the pods that get through, by a loop over the definition."""
    order = sorted(pods, key=lambda name: (-pods[name].priority, -pods[name].age_s, name))
    let_through = []
    for name in order:
        pod = pods[name]
        if pod.devices <= left:
            let_through.append(name)
            left -= pod.devices
        elif pod.age_s >= MAX_PASSED_S and pod.devices <= most:
            break  # Everything that is left is saved for it.
    return let_through


@given(pods=st.lists(PODS, max_size=8), running=st.integers(0, 4), most=st.integers(0, 8))
def test_the_order_is_that_of_the_definition(pods: list[Pod], running: int, most: int) -> None:
    usage = world(most)
    for number in range(running):
        add(usage, f"running-{number}", Pod(1, 0, 0), is_gated=False)
    named = {f"pod-{number}": pod for number, pod in enumerate(pods)}
    for name, pod in named.items():
        add(usage, name, pod)
    charge(usage)

    decisions = decide(usage, {}, NOW)

    expected = expected_order(named, most - running, most)
    assert [name for _, name in decisions.let_through] == expected


class Step(NamedTuple):
    """A step of a history: a pod comes, is seen without its gate, gets devices, or goes."""

    kind: str
    number: int
    pod: Pod


STEPS: Final = st.builds(
    Step,
    kind=st.sampled_from(["come", "seen", "allocated", "gone", "restart"]),
    number=st.integers(0, 5),
    pod=PODS,
)


@given(steps=st.lists(STEPS, max_size=30), most=st.integers(0, 6))
def test_no_history_exceeds_the_limit(steps: list[Step], most: int) -> None:
    usage = world(most)
    pods: dict[str, Pod] = {}
    free: set[str] = set()
    allocated: set[str] = set()
    for step in steps:
        name = f"pod-{step.number}"
        if step.kind == "come" and name not in pods:
            pods[name] = step.pod
            add(usage, name, step.pod)
        elif step.kind == "seen" and name in free:
            usage.replace_pod(("default", name), pod_of(name, pods[name], is_gated=False))
        elif step.kind == "allocated" and name in free:
            allocated.add(name)
            put_allocation(usage, name, pods[name])
        elif step.kind == "gone" and name in pods:
            usage.replace_pod(("default", name), None)
            usage.replace_claim(("default", name), None)
            del pods[name]
            free.discard(name)
            allocated.discard(name)
        elif step.kind == "restart":
            # Every removal of a gate was written, and a new leader reads what is stored.
            usage = world(most)
            for other, pod in pods.items():
                add(usage, other, pod, is_gated=other not in free)
                if other in allocated:
                    put_allocation(usage, other, pod)
        charge(usage)
        free |= {name for _, name in decide(usage, {}, NOW).let_through}

        assert committed(usage) == sum(pods[name].devices for name in free) * ONE
        assert committed(usage) <= most * ONE
        assert {
            key[1]
            for key, entry in usage.book.ledger.entries.items()
            if isinstance(key, tuple) and entry.stage is Stage.USED
        } == allocated


def put_allocation(usage: QuotaUsage, name: str, pod: Pod) -> None:
    devices = [result(f"gpu-{number}") for number in range(pod.devices)]
    document = msgspec.to_builtins(allocated_claim(*devices), enc_hook=str)
    usage.replace_claim(("default", name), project_quota_claim(msgspec.json.encode(document)))
