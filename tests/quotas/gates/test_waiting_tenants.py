"""Pods that wait, by the limits that they share."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from allocator.model.feature_gates import Features
from controllers.quotas.projections import project_quota_pod
from kube.api.device_quota import Budget, DeviceQuota, QuotaEnforcement
from kube.names import QUOTA_GATE
from quotas.gates.admission_order import decide
from quotas.gates.tenants import waiting_by_tenant
from quotas.gates.usage import QuotaUsage
from testing.device_quotas import device_limit, quota

NAMESPACES: Mapping[str, Mapping[str, str]] = {
    "a": {"team": "one"},
    "b": {"team": "two"},
    "c": {"team": "one"},
    "d": {"team": "two", "both": "yes"},
    "e": {"team": "one", "both": "yes"},
    "f": {},
}


def team(name: str, **fields: Any) -> DeviceQuota:
    return quota(device_limit(1), name=name, labels={"team": name}, **fields)


def usage(*quotas: DeviceQuota, waiting: str) -> QuotaUsage:
    """A cluster with a pod that waits in each of some namespaces."""
    followed = QuotaUsage(Features(), lambda: 0.0)
    for entry in quotas:
        followed.replace_quota(entry.metadata.name, entry)
    for name, labels in NAMESPACES.items():
        followed.replace_namespace(name, labels)
    for name in waiting:
        metadata = {"name": "pod", "namespace": name, "uid": name}
        spec = {"schedulingGates": [{"name": QUOTA_GATE}]}
        document = {"metadata": metadata, "spec": spec}
        followed.replace_pod((name, "pod"), project_quota_pod(msgspec.json.encode(document)))
    return followed


ONE, TWO = team("one"), team("two")
BOTH = quota(device_limit(1), name="both", labels={"both": "yes"})


@pytest.mark.parametrize(
    ("expected", "quotas", "waiting"),
    [
        (["a", "b", "f"], (), "abf"),
        (["ac", "b"], (ONE, TWO), "abc"),
        (["ace", "bd", "f"], (ONE, TWO), "abcdef"),
        (["abcde", "f"], (ONE, TWO, BOTH), "abcdef"),
        (["a", "c"], (team("one", budget=Budget.PER_NAMESPACE),), "ac"),
        (["a", "c"], (team("one", enforcement=QuotaEnforcement.AUDIT),), "ac"),
    ],
    ids=[
        "without limits",
        "one limit for two namespaces",
        "two limits",
        "a limit that joins two others",
        "a budget for each namespace",
        "a limit that holds nobody back",
    ],
)
def test_namespaces_that_share_a_limit_are_one_tenant(
    expected: list[str], quotas: tuple[DeviceQuota, ...], waiting: str
) -> None:
    tenants = waiting_by_tenant(usage(*quotas, waiting=waiting))

    assert expected == ["".join(namespace for namespace, _ in keys) for keys in tenants.values()]
    assert [namespaces[0] for namespaces in expected] == list(tenants)


def test_a_round_of_a_tenant_decides_about_its_pods_only() -> None:
    followed = usage(waiting="ab")

    decisions = decide(followed, {}, 0.0, waiting_pods=[("b", "pod")])

    assert decisions.let_through == (("b", "pod"),)
