"""The usage of quotas as pods and claims come, lose their gates, and go."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from allocator.declarations.model import GroupName, GroupSystem
from allocator.model.feature_gates import Features
from controllers.quotas.projections import project_quota_claim, project_quota_pod
from kube.api.core import Pod
from kube.api.extended_resources import IMPLICIT_PREFIX
from kube.names import QUOTA_GATE, SCHEDULER_NAME
from quotas.device_quotas.ledger import Totals
from quotas.gates.counted_objects import QuotaClaim
from quotas.gates.groups import KnownPodGroup
from quotas.gates.usage import ABANDONED_S, PodClaims, QuotaUsage
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

ONE = 10**9
GATE = [{"name": QUOTA_GATE}]
GENERATED = "the claim for its entry x"
RING = GroupName(GroupSystem.KUBERNETES, "default", "ring")
OF_RING = {
    "apiVersion": "scheduling.k8s.io/v1beta1",
    "kind": "PodGroup",
    "name": "ring",
    "uid": "ring-1",
    "controller": True,
}


def usage(clock: Callable[[], float] = time.monotonic) -> QuotaUsage:
    made = QuotaUsage(Features(), clock)
    made.replace_quota("team", quota(device_limit(8)))
    made.replace_namespace("default", {})
    for name, device_class in classes().items():
        made.replace_class(name, device_class)
    made.replace_slices({"a": slice_of(device("a"), device("b"))})
    return made


def pod(name: str = "pod", *claims: str, **spec: Any) -> Pod | None:
    """A pod with one claim for each name, from a template if the name begins with a dot."""
    names = [{"name": claim_, "resourceClaimName": claim_} for claim_ in claims]
    document = {
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"resourceClaims": names, **{key: spec[key] for key in spec if key != "status"}},
        "status": spec.get("status", {}),
    }
    return project_quota_pod(msgspec.json.encode(document))


def keys(amount: int, key: str = f"{IMPLICIT_PREFIX}gpu") -> list[dict[str, Any]]:
    return [{"name": "main", "resources": {"requests": {key: str(amount)}}}]


def stored(
    *requests: Any,
    of: str = "",
    owner: dict[str, Any] | None = None,
    extended: bool = False,
    has: Sequence[str] = (),
) -> QuotaClaim:
    metadata: dict[str, Any] = {"name": "c", "namespace": "default"}
    if of:
        owner = {"kind": "Pod", "name": of, "uid": of}
    if owner:
        metadata["ownerReferences"] = [owner]
    if extended:
        metadata["annotations"] = {"resource.kubernetes.io/extended-resource-claim": "true"}
    made = allocated_claim(*map(result, has)) if has else claim(*requests or (request(),))
    document = msgspec.to_builtins(made, enc_hook=str)
    return project_quota_claim(msgspec.json.encode(document | {"metadata": metadata}))


def totals(of: QuotaUsage) -> Totals:
    for key in tuple(of.book.outstanding):
        of.book.charge(key)
    (account,) = of.book.accounts("default")
    return of.book.ledger.totals(account)


def test_a_claim_waits_while_its_only_pod_is_gated() -> None:
    followed = usage()
    followed.replace_claim(("default", "c"), stored())
    followed.replace_pod(("default", "pod"), pod("pod", "c", schedulingGates=GATE))
    assert totals(followed) == Totals(waiting=ONE)

    followed.replace_pod(("default", "pod"), pod("pod", "c"))
    assert totals(followed) == Totals(promised=ONE)


def test_a_promised_claim_outlives_its_pod_for_a_while() -> None:
    now_s = 0.0
    followed = usage(lambda: now_s)
    followed.replace_claim(("default", "c"), stored())
    followed.replace_pod(("default", "pod"), pod("pod", "c"))

    # The scheduler may be about to write its allocation.
    followed.replace_pod(("default", "pod"), None)
    now_s = 10.0
    assert followed.release_abandoned() == ABANDONED_S - 10
    assert totals(followed) == Totals(promised=ONE)

    now_s = ABANDONED_S
    assert followed.release_abandoned() is None
    assert totals(followed) == Totals(waiting=ONE)


def test_a_promised_claim_that_is_deleted_with_its_pod_waits_for_that() -> None:
    now_s = 0.0
    followed = usage(lambda: now_s)
    followed.replace_claim(("default", "c"), stored(of="pod"))
    followed.replace_pod(("default", "pod"), pod("pod", "c"))
    followed.replace_pod(("default", "pod"), None)

    now_s = 10 * ABANDONED_S
    followed.release_abandoned()
    assert totals(followed) == Totals(promised=ONE)

    followed.replace_claim(("default", "c"), None)
    assert totals(followed) == Totals()


def test_a_claim_is_free_once_it_is_deallocated() -> None:
    followed = usage()
    document = msgspec.to_builtins(allocated_claim(result("a")), enc_hook=str)
    followed.replace_pod(("default", "pod"), pod("pod", "c"))
    followed.replace_claim(("default", "c"), project_quota_claim(msgspec.json.encode(document)))
    followed.replace_pod(("default", "pod"), None)

    followed.replace_claim(("default", "c"), stored())

    assert totals(followed) == Totals(waiting=ONE)


def test_an_allocated_claim_is_used_whoever_waits_for_it() -> None:
    followed = usage()
    document = msgspec.to_builtins(allocated_claim(result("a")), enc_hook=str)
    followed.replace_claim(("default", "c"), project_quota_claim(msgspec.json.encode(document)))
    followed.replace_pod(("default", "pod"), pod("pod", "c", schedulingGates=GATE))

    assert totals(followed) == Totals(used=ONE)


def test_a_shared_claim_is_promised_with_its_first_pod() -> None:
    followed = usage()
    followed.replace_claim(("default", "c"), stored())
    followed.replace_pod(("default", "first"), pod("first", "c"))
    followed.replace_pod(("default", "second"), pod("second", "c", schedulingGates=GATE))

    assert totals(followed) == Totals(promised=ONE)


def test_a_decision_counts_before_its_write_is_seen() -> None:
    followed = usage()
    followed.replace_claim(("default", "c"), stored())
    followed.replace_pod(("default", "pod"), pod("pod", "c", schedulingGates=GATE))

    followed.let_through(("default", "pod"))
    assert totals(followed) == Totals(promised=ONE)

    # The watch brings the pod once more as it was.
    followed.replace_pod(("default", "pod"), pod("pod", "c", schedulingGates=GATE))
    assert totals(followed) == Totals(promised=ONE)


def test_the_decision_about_a_pod_ends_with_it() -> None:
    followed = usage()
    followed.replace_pod(("default", "pod"), pod("pod", "c", schedulingGates=GATE))
    followed.let_through(("default", "pod"))
    gated = followed.pods["default", "pod"]
    successor = msgspec.structs.replace(
        gated, metadata=msgspec.structs.replace(gated.metadata, uid="next")
    )

    followed.replace_pod(("default", "pod"), successor)

    assert followed.waits(successor)


def test_keys_of_a_class_are_charged_until_the_pod_is_bound() -> None:
    followed = usage()
    followed.replace_pod(("default", "pod"), pod(containers=keys(2), schedulingGates=GATE))
    assert totals(followed) == Totals(waiting=2 * ONE)
    followed.replace_pod(("default", "pod"), pod(containers=keys(2)))
    assert totals(followed) == Totals(promised=2 * ONE)

    claimed = {"extendedResourceClaimStatus": {"resourceClaimName": "c"}}
    bound = pod(containers=keys(2), nodeName="node-1", status=claimed)
    followed.replace_pod(("default", "pod"), bound)
    assert totals(followed) == Totals(promised=2 * ONE), "its claim has not been seen yet"

    followed.replace_claim(("default", "c"), stored(of="pod", extended=True, has=("a", "b")))
    assert totals(followed) == Totals(used=2 * ONE)


def test_a_claim_that_looks_like_the_schedulers_takes_nothing_off() -> None:
    followed = usage()
    followed.replace_pod(("default", "pod"), pod(containers=keys(2)))

    followed.replace_claim(("default", "c"), stored(of="pod", extended=True, has=("a",)))

    assert totals(followed) == Totals(used=ONE, promised=2 * ONE)


def test_keys_that_a_device_plugin_serves_are_not_charged() -> None:
    followed = usage()
    followed.replace_pod(("default", "pod"), pod(containers=keys(2), nodeName="node-1"))

    assert totals(followed) == Totals()


def test_keys_are_charged_once_a_class_maps_them() -> None:
    followed = usage()
    followed.replace_pod(("default", "pod"), pod(containers=keys(1, "example.com/gpu")))
    assert totals(followed) == Totals()
    gpu = classes()["gpu"]

    followed.replace_class(
        "gpu",
        msgspec.structs.replace(
            gpu, spec=msgspec.structs.replace(gpu.spec, extended_resource_name="example.com/gpu")
        ),
    )

    assert totals(followed) == Totals(promised=ONE)


@pytest.mark.parametrize(
    ("entries", "statuses", "expected"),
    [
        ([{"name": "x", "resourceClaimName": "c"}], [], PodClaims((("default", "c"),))),
        ([{"name": "x", "resourceClaimName": "other"}], [], PodClaims((), ("claim other",))),
        ([{"name": "x", "resourceClaimTemplateName": "t"}], [], PodClaims((), (GENERATED,))),
        (
            [{"name": "x", "resourceClaimTemplateName": "t"}],
            [{"name": "x", "resourceClaimName": "made"}],
            PodClaims((("default", "made"),)),
        ),
        # Written by somebody who may write the status of pods.
        (
            [{"name": "x", "resourceClaimTemplateName": "t"}],
            [{"name": "x", "resourceClaimName": "c"}],
            PodClaims((("default", "c"),), (GENERATED,)),
        ),
        (
            [{"name": "x", "resourceClaimTemplateName": "t"}],
            [{"name": "x"}],
            PodClaims((), (GENERATED,)),
        ),
    ],
)
def test_what_a_pod_asks_for_is_known_once_its_claims_exist(
    entries: list[dict[str, str]], statuses: list[dict[str, str]], expected: PodClaims
) -> None:
    followed = usage()
    followed.replace_claim(("default", "c"), stored())
    followed.replace_claim(("default", "made"), stored(of="pod"))
    followed.replace_pod(
        ("default", "pod"),
        pod(resourceClaims=entries, status={"resourceClaimStatuses": statuses}),
    )

    assert followed.claims_of(("default", "pod")) == expected


def member(name: str, **spec: Any) -> Pod | None:
    """A pod of the group `ring` with a claim that was made for the group."""
    return pod(
        name,
        resourceClaims=[{"name": "x", "resourceClaimTemplateName": "t"}],
        schedulingGroup={"podGroupName": "ring"},
        status={"resourceClaimStatuses": [{"name": "x", "resourceClaimName": "c"}]},
        **spec,
    )


def test_a_claim_of_a_pod_group_is_known_to_its_pods_and_charged_once() -> None:
    """Such pods waited for ever, since the claim has no pod as its owner."""
    followed = usage()
    followed.groups.replace_pod_group(RING, KnownPodGroup(2, "ring-1"))
    followed.replace_claim(("default", "c"), stored(owner=OF_RING))
    for name in ("a", "b"):
        followed.replace_pod(("default", name), member(name, schedulingGates=GATE))
        assert followed.claims_of(("default", name)) == PodClaims((("default", "c"),))
    assert totals(followed) == Totals(waiting=ONE)

    followed.let_through(("default", "a"))
    followed.let_through(("default", "b"))
    assert totals(followed) == Totals(promised=ONE)


@pytest.mark.parametrize(
    ("pod_group", "owner"),
    [
        (None, OF_RING),
        (KnownPodGroup(2), OF_RING | {"uid": ""}),
        (KnownPodGroup(2, "ring-2"), OF_RING),
        (KnownPodGroup(2, "ring-1"), OF_RING | {"kind": "Workload"}),
        (KnownPodGroup(2, "ring-1"), OF_RING | {"apiVersion": "scheduling.volcano.sh/v1beta1"}),
    ],
)
def test_only_the_pod_group_of_a_pod_has_its_claims(
    pod_group: KnownPodGroup | None, owner: dict[str, Any]
) -> None:
    """A group of the same name may have been there before."""
    followed = usage()
    followed.groups.replace_pod_group(RING, pod_group)
    followed.replace_claim(("default", "c"), stored(owner=owner))
    followed.replace_pod(("default", "a"), member("a", schedulingGates=GATE))

    assert followed.claims_of(("default", "a")).missing == (GENERATED,)


def test_a_pod_of_another_group_is_not_given_the_claim() -> None:
    followed = usage()
    followed.groups.replace_pod_group(RING, KnownPodGroup(2, "ring-1"))
    followed.replace_claim(("default", "c"), stored(owner=OF_RING))
    entries = [{"name": "x", "resourceClaimTemplateName": "t"}]
    status = {"resourceClaimStatuses": [{"name": "x", "resourceClaimName": "c"}]}
    for group in ({}, {"podGroupName": "other"}, {"podGroupName": None}):
        other = pod(resourceClaims=entries, status=status, schedulingGroup=group)
        followed.replace_pod(("default", "pod"), other)

        assert followed.claims_of(("default", "pod")).missing == (GENERATED,)


def test_a_claim_of_a_pod_group_is_free_once_its_pods_have_been_gone_for_a_while() -> None:
    """The group may get new pods, and they wait for a decision."""
    now_s = 0.0
    followed = usage(lambda: now_s)
    followed.groups.replace_pod_group(RING, KnownPodGroup(1, "ring-1"))
    followed.replace_claim(("default", "c"), stored(owner=OF_RING))
    followed.replace_pod(("default", "a"), member("a"))
    followed.replace_pod(("default", "b"), member("b"))
    followed.replace_pod(("default", "a"), None)
    now_s = 10 * ABANDONED_S
    followed.release_abandoned()
    assert totals(followed) == Totals(promised=ONE), "the other pod may get it"

    followed.replace_pod(("default", "b"), None)
    assert followed.release_abandoned() == ABANDONED_S
    assert totals(followed) == Totals(promised=ONE)

    now_s += ABANDONED_S
    followed.release_abandoned()
    followed.replace_pod(("default", "b"), member("b", schedulingGates=GATE))
    assert totals(followed) == Totals(waiting=ONE)


@pytest.mark.parametrize(
    ("spec", "is_kept"),
    [
        ({}, False),
        ({"schedulingGates": GATE}, True),
        ({"schedulingGates": [{"name": "example.com/other"}]}, False),
        ({"containers": keys(1, "example.com/gpu")}, True),
        ({"containers": keys(1, "cpu")}, False),
        ({"containers": keys(1, "example.com/gpu"), "status": {"phase": "Failed"}}, False),
    ],
)
def test_only_pods_with_devices_are_kept(spec: dict[str, Any], is_kept: bool) -> None:
    assert (pod(**spec) is not None) is is_kept


def test_a_pod_of_the_bridge_is_promised_nothing() -> None:
    """The bridge rejects it for a driver that it does not own: such pods used up the budget of a team."""
    used = usage()
    used.replace_claim(("default", "c"), stored())
    used.replace_pod(("default", "pod"), pod("pod", "c", schedulerName=SCHEDULER_NAME))
    # It makes no claim for keys that a class maps.
    used.replace_pod(
        ("default", "keys"), pod("keys", schedulerName=SCHEDULER_NAME, containers=keys(2))
    )
    assert totals(used) == Totals(waiting=ONE)

    used.replace_claim(("default", "c"), stored(has=["a"]))
    assert totals(used) == Totals(used=ONE)
