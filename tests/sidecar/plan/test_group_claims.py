"""The entries of pods in claims: their own, or that of their PodGroup."""

from typing import Any

import pytest

from allocator.declarations.pod_group import PodGroup
from kube.api.core import Pod
from kube.api.meta import convert
from kube.api.resource import ResourceClaim
from sidecar.plan.group_claims import entries_by_claim, is_reserved_for_pod

BY_NAME = {"name": "net", "resourceClaimName": "fabric"}
BY_TEMPLATE = {"name": "gpus", "resourceClaimTemplateName": "gpu-pair"}


def pod(*entries: dict[str, Any], group: str = "ring") -> Pod:
    document = {
        "metadata": {"name": "ring-0", "namespace": "default", "uid": "uid-0"},
        "spec": {"resourceClaims": entries, "schedulingGroup": {"podGroupName": group}},
        "status": {"resourceClaimStatuses": [{"name": "gpus", "resourceClaimName": "gpus-x7k2p"}]},
    }
    return convert(document, Pod)


def pod_group(*entries: dict[str, Any]) -> PodGroup:
    metadata = {"name": "ring", "namespace": "default", "uid": "uid-ring"}
    return convert({"metadata": metadata, "spec": {"resourceClaims": entries}}, PodGroup)


@pytest.mark.parametrize(
    ("name", "entries", "group", "want"),
    [
        ("the same claim", [BY_NAME], pod_group(BY_NAME), {"fabric": "uid-ring"}),
        ("the same template", [BY_TEMPLATE], pod_group(BY_TEMPLATE), {"gpus-x7k2p": "uid-ring"}),
        (
            "another name of the entry",
            [{**BY_NAME, "name": "nic"}],
            pod_group(BY_NAME),
            {"fabric": "uid-0"},
        ),
        (
            "another claim of the name",
            [{**BY_NAME, "resourceClaimName": "other"}],
            pod_group(BY_NAME),
            {"other": "uid-0"},
        ),
        ("a group without claims", [BY_NAME], pod_group(), {"fabric": "uid-0"}),
        ("a group that is not known", [BY_NAME], None, {"fabric": "uid-0"}),
        (
            "one claim by two entries",
            [{**BY_NAME, "name": "nic"}, BY_NAME],
            pod_group(BY_NAME),
            {"fabric": "uid-ring"},
        ),
        ("a claim that is not made yet", [{**BY_TEMPLATE, "name": "new"}], None, {}),
    ],
)
def test_the_entry_of_each_claim(
    name: str, entries: list[dict[str, Any]], group: PodGroup | None, want: dict[str, str]
) -> None:
    got = entries_by_claim(pod(*entries), group)

    assert {claim: entry.uid for (_, claim), entry in got.items()} == want, name


@pytest.mark.parametrize(
    ("name", "entry", "want"),
    [
        ("its own", {"resource": "pods", "name": "ring-0", "uid": "uid-0"}, True),
        ("another pod's", {"resource": "pods", "name": "ring-0", "uid": "uid-1"}, False),
        (
            "its group's",
            {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "ring", "uid": "u"},
            True,
        ),
        (
            "another group's",
            {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "b", "uid": "u"},
            False,
        ),
        (
            "another kind of group's",
            {"apiGroup": "example.com", "resource": "podgroups", "name": "ring", "uid": "u"},
            False,
        ),
    ],
)
def test_a_pod_may_use_a_claim_by_its_entry_or_its_group_s(
    name: str, entry: dict[str, str], *, want: bool
) -> None:
    claim = convert({"status": {"reservedFor": [entry]}}, ResourceClaim)

    assert is_reserved_for_pod(claim, pod()) is want, name


def test_a_pod_without_a_group_has_no_group_s_claims() -> None:
    entry = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "", "uid": "u"}
    claim = convert({"status": {"reservedFor": [entry]}}, ResourceClaim)

    assert not is_reserved_for_pod(claim, pod(group=""))
