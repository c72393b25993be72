"""Pods of the bridge with keys of device plugins: the gates decide about the keys, and the bridge about claims."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from allocator.declarations.model import GroupName, GroupSystem
from allocator.model.feature_gates import Features
from controllers.quotas.projections import project_quota_claim, project_quota_pod
from kube.api.core import Pod
from kube.api.device_quota import LegacyKey
from kube.api.extended_resources import IMPLICIT_PREFIX
from kube.api.meta import rfc3339
from kube.names import QUOTA_GATE, SCHEDULER_NAME
from quotas.device_quotas.ledger import Totals
from quotas.gates.admission_order import MISSING_S, Decisions, decide
from quotas.gates.counted_objects import MAPPED_KEYS, QuotaClaim
from quotas.gates.groups import KnownPodGroup
from quotas.gates.usage import Key, QuotaUsage
from quotas.gates.waiting_note import waiting_note
from testing.allocation.builders import (
    DRIVER,
    allocated_claim,
    claim,
    classes,
    device,
    request,
    result,
    slice_of,
)
from testing.device_quotas import device_limit, quota

GPU = "nvidia.com/gpu"
NOW = 1_795_000_000.0
ONE = 10**9
OWNED = {DRIVER: "the bridge decides"}
RING = GroupName(GroupSystem.KUBERNETES, "default", "ring")


def usage(most: int = 1) -> QuotaUsage:
    followed = QuotaUsage(Features(), lambda: 0.0)
    followed.replace_quota("team", quota(device_limit(most, legacy_keys=(LegacyKey(name=GPU),))))
    followed.replace_namespace("default", {})
    for name, device_class in classes().items():
        followed.replace_class(name, device_class)
    followed.replace_slices({"a": slice_of(*map(device, "abcd"))})
    return followed


def map_key(followed: QuotaUsage, key: str) -> None:
    """Have a DeviceClass map a key."""
    gpu = classes()["gpu"]
    spec = replace(gpu.spec, extended_resource_name=key)
    followed.replace_class("gpu", replace(gpu, spec=spec))


def pod(
    name: str, *, keys: int = 1, key: str = GPU, claims: tuple[str, ...] = (), **spec: Any
) -> Pod:
    """A pod of the bridge behind the gate."""
    limits = {key: str(keys)} if keys else {}
    document = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": name,
            "creationTimestamp": rfc3339(datetime.fromtimestamp(NOW, UTC)),
        },
        "spec": {
            "schedulerName": SCHEDULER_NAME,
            "schedulingGates": [{"name": QUOTA_GATE}],
            "containers": [{"name": "main", "resources": {"limits": limits}}],
            "resourceClaims": [{"name": each, "resourceClaimName": each} for each in claims],
            **spec,
        },
    }
    counted = project_quota_pod(msgspec.json.encode(document))
    assert counted is not None
    return counted


def put(followed: QuotaUsage, *pods: Pod) -> None:
    for each in pods:
        followed.replace_pod(("default", each.metadata.name), each)


def stored(*has: str) -> QuotaClaim:
    made = allocated_claim(*map(result, has)) if has else claim(request())
    document = msgspec.to_builtins(made, enc_hook=str)
    return project_quota_claim(msgspec.json.encode(document))


def charge(followed: QuotaUsage) -> None:
    for key in tuple(followed.book.outstanding):
        followed.book.charge(key)


def decided(followed: QuotaUsage, **options: Any) -> Decisions:
    charge(followed)
    return decide(followed, OWNED, NOW + MISSING_S, **options)


def let_through(followed: QuotaUsage, **options: Any) -> list[str]:
    return [name for _, name in decided(followed, **options).let_through]


def totals(followed: QuotaUsage) -> Totals:
    charge(followed)
    (account,) = followed.book.accounts("default")
    return followed.book.ledger.totals(account)


def test_pods_come_through_as_far_as_their_keys_fit() -> None:
    followed = usage(1)
    put(followed, pod("first"), pod("second"))

    decisions = decided(followed)

    assert decisions.let_through == (("default", "first"),)
    (waiting,) = decisions.waiting
    assert waiting.unit.pods == (("default", "second"),)
    assert waiting.excesses[0].message.endswith("1 device needed, 0 of 1 device left")
    assert totals(followed) == Totals(promised=ONE, waiting=ONE)

    followed.replace_pod(("default", "first"), None)
    assert let_through(followed) == ["second"]


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [{"resources": {"requests": {GPU: "1"}}}]},
        {"containers": [], "initContainers": [{"resources": {"limits": {GPU: "1"}}}]},
        {"containers": [], "initContainers": [{"resources": {"requests": {GPU: "1"}}, "restartPolicy": "Always"}]},
    ],
    ids=["requests", "init container", "sidecar container"],
)  # fmt: skip
def test_keys_count_wherever_they_are_written(spec: dict[str, Any]) -> None:
    followed = usage(0)
    put(followed, pod("pod", **spec))

    assert let_through(followed) == []


def test_its_claims_are_decided_about_by_the_bridge() -> None:
    """Missing claims and claims above the limit keep no pod behind the gate."""
    followed = usage(1)
    followed.replace_claim(("default", "claim"), stored())
    put(followed, pod("pod", claims=("claim", "not-made")))

    assert let_through(followed) == ["pod"]
    assert totals(followed) == Totals(promised=ONE, waiting=ONE)

    put(followed, pod("pod", claims=("claim", "not-made"), schedulingGates=[], nodeName="node"))
    followed.replace_claim(("default", "claim"), stored("a"))
    assert totals(followed) == Totals(used=2 * ONE)


def test_what_claims_use_is_not_left_for_keys() -> None:
    followed = usage(1)
    followed.replace_claim(("default", "claim"), stored("a"))
    put(followed, pod("pod"))

    assert let_through(followed) == []


def test_without_keys_a_pod_waits_for_nothing() -> None:
    followed = usage(0)
    followed.replace_claim(("default", "claim"), stored())
    put(followed, pod("claims", keys=0, claims=("claim", "not-made")), pod("zero", keys=0))

    assert let_through(followed, unconfirmed=("default",)) == ["claims", "zero"]


def test_a_pod_with_keys_waits_until_it_is_known_that_no_quota_limits_it() -> None:
    followed = usage()
    followed.replace_quota("team", None)
    put(followed, pod("pod"))

    assert let_through(followed, unconfirmed=("default",)) == []
    assert let_through(followed) == ["pod"]


def test_keys_of_no_limit_wait_for_nothing() -> None:
    followed = usage(0)
    put(followed, pod("pod", key="example.com/fpga"))

    assert let_through(followed) == ["pod"]


@pytest.mark.parametrize("key", [GPU, "example.com/fpga", f"{IMPLICIT_PREFIX}gpu"])
def test_a_key_that_a_class_maps_is_never_promised(key: str) -> None:
    """The bridge rejects the pod, and would place it once no class maps the key any more."""
    followed = usage(8)
    map_key(followed, key)
    put(followed, pod("pod", key=key))

    (waiting,) = decided(followed).waiting

    assert waiting_note(waiting, followed.book.ledger) == MAPPED_KEYS
    assert totals(followed).promised == 0


def test_a_key_that_a_class_maps_later_stays_promised() -> None:
    """A bridge that has not heard of the class would place it."""
    followed = usage(1)
    put(followed, pod("pod"))
    assert let_through(followed) == ["pod"]

    map_key(followed, GPU)

    assert totals(followed) == Totals(promised=ONE)


IN_RING: dict[str, Any] = {"schedulingGroup": {"podGroupName": "ring"}}
UNGATED: dict[str, Any] = {"schedulingGates": []}


def test_members_with_keys_come_through_beside_those_that_the_bridge_holds() -> None:
    """The bridge waits for all of them, so the gate must not wait for those without it."""
    followed = usage(2)
    for name in ("claims-1", "claims-2"):
        followed.replace_claim(("default", name), stored())
        put(followed, pod(name, keys=0, claims=(name,), **IN_RING, **UNGATED))
    put(followed, pod("keys-1", **IN_RING), pod("keys-2", **IN_RING))
    followed.groups.replace_pod_group(RING, KnownPodGroup(4, "ring-uid"))

    assert let_through(followed) == ["keys-1", "keys-2"]
    assert totals(followed) == Totals(promised=2 * ONE, waiting=2 * ONE)


def test_members_with_keys_come_through_together_or_not_at_all() -> None:
    followed = usage(1)
    put(followed, pod("keys-1", **IN_RING), pod("keys-2", **IN_RING))
    put(followed, pod("launcher", keys=0, **IN_RING, **UNGATED))
    followed.groups.replace_pod_group(RING, KnownPodGroup(3, "ring-uid"))
    assert let_through(followed) == []

    followed.replace_quota("team", quota(device_limit(2, legacy_keys=(LegacyKey(name=GPU),))))

    assert let_through(followed) == ["keys-1", "keys-2"]


def test_a_group_of_a_bridge_of_another_name_has_members_with_and_without_keys() -> None:
    """The policy adds the gate to all of them."""
    followed = usage(1)
    followed.replace_claim(("default", "claim"), stored())
    put(followed, pod("keys", **IN_RING))
    put(followed, pod("claims", keys=0, claims=("claim", "not-made"), **IN_RING))
    followed.groups.replace_pod_group(RING, KnownPodGroup(2, "ring-uid"))

    assert let_through(followed) == ["claims", "keys"]
    assert totals(followed) == Totals(promised=ONE, waiting=ONE)


def test_after_a_restart_of_the_controllers_what_was_let_through_is_promised() -> None:
    followed = usage(1)
    put(followed, pod("first", **UNGATED), pod("second"))

    assert let_through(followed) == []
    key: Key = ("default", "first")
    assert followed.is_charged(key)
