"""The next write of a claim, after any change of it meanwhile."""

from typing import Any

import pytest
from msgspec.structs import replace

from kube.api.core import Node
from kube.api.meta import ObjectMeta, convert
from kube.api.resource import AllocationResult, ResourceClaim, ResourceClaimConsumerReference
from kube.errors import KubeError
from sidecar.commit.ledger import Hold, Step
from sidecar.commit.steps import (
    Candidate,
    ClaimWrite,
    Kind,
    after,
    before,
    next_bind_step,
    next_release_step,
    next_settle_step,
    patch_of,
)
from sidecar.commit.writes import FINALIZER, MAX_CONSUMERS, Consumer, Outcome, outcome_of
from sidecar.model.protocol import Verdict
from sidecar.model.rejections import Code, Rejection
from sidecar.plan.group_claims import pod_entry

NODE = Node(metadata=ObjectMeta(name="node-1"))
POD = pod_entry("a", "uid-a")
HERE_POD = Candidate(Consumer("uid-a", POD), NODE)
GROUP = ResourceClaimConsumerReference(
    api_group="scheduling.k8s.io", resource="podgroups", name="ring", uid="uid-ring"
)
OTHER = {"resource": "pods", "name": "b", "uid": "uid-b"}
DRIVERS = frozenset({"gpu.example.com"})
HERE = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}
ELSEWHERE = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-2"]}]}


def claim_with(
    *,
    finalizers: tuple[str, ...] = (FINALIZER,),
    uid: str = "claim",
    deleted: str | None = None,
    **status: Any,
) -> ResourceClaim:
    metadata = {"name": "gpu", "namespace": "default", "uid": uid, "resourceVersion": "7"}
    if deleted is not None:
        metadata["deletionTimestamp"] = deleted
    return convert(
        {"metadata": {**metadata, "finalizers": finalizers}, "status": status}, ResourceClaim
    )


def allocated(where: object = HERE, *users: object) -> ResourceClaim:
    allocation = {"nodeSelector": {"nodeSelectorTerms": [where]}}
    return claim_with(allocation=allocation, reservedFor=list(users))


def hold(step: Step = Step.RESERVED, pods: tuple[str, ...] = ("uid-a",)) -> Hold:
    return Hold(
        name=("default", "gpu"),
        uid="claim",
        allocation=AllocationResult(),
        pods=frozenset(pods),
        step=step,
        base="7",
    )


def bind(
    claim: ResourceClaim | None, promised: Hold | None = None, *, is_unsettled: bool = False
) -> Kind | Code | None:
    step = next_bind_step(
        claim, "claim", promised, HERE_POD, drivers=DRIVERS, is_unsettled=is_unsettled
    )
    if isinstance(step, ClaimWrite):
        return step.kind
    return step.code if isinstance(step, Rejection) else None


@pytest.mark.parametrize(
    ("name", "claim", "promised", "want"),
    [
        ("the finalizer comes first", claim_with(finalizers=()), hold(), Kind.PROTECT),
        ("then the devices", claim_with(), hold(), Kind.ALLOCATE),
        ("of another pod's allocation only the reservation", allocated(), None, Kind.RESERVE),
        ("nothing is left", allocated(HERE, {"uid": "uid-a"}), None, None),
        ("it is gone", None, hold(), Code.CLAIM_NOT_FOUND),
        ("it is another one", claim_with(uid="other"), hold(), Code.CLAIM_NOT_FOUND),
        (
            "it is being deleted",
            claim_with(deleted="2026-11-21T00:00:00Z"),
            hold(),
            Code.CLAIM_DELETED,
        ),
        ("somebody allocated it elsewhere", allocated(ELSEWHERE), hold(), Code.CLAIM_NOT_AVAILABLE),
        ("nothing is promised any more", claim_with(), None, Code.DEVICES_GONE),
        ("it is promised for another pod", claim_with(), hold(pods=("uid-b",)), Code.DEVICES_GONE),
    ],
)
def test_next_bind_step(
    name: str, claim: ResourceClaim | None, promised: Hold | None, want: Kind | Code | None
) -> None:
    assert bind(claim, promised) == want, name


def test_a_claim_without_a_place_is_not_written() -> None:
    """The API server would refuse it, and each attempt after that."""
    others = [{"uid": f"uid-{number}"} for number in range(MAX_CONSUMERS)]
    full = allocated(HERE, *others)

    step = next_bind_step(full, "claim", None, HERE_POD, drivers=DRIVERS, is_unsettled=False)

    assert isinstance(step, Rejection)
    assert (step.code, step.verdict) == (Code.TOO_MANY_CONSUMERS, Verdict.ERROR)
    assert bind(allocated(HERE, *others[1:])) is Kind.RESERVE
    assert bind(allocated(HERE, *others[1:], {"uid": "uid-a"})) is None, "it has its place"


WAITING = tuple(
    Candidate(Consumer(uid, pod_entry(uid, uid)), node)
    for uid, node in (
        ("uid-b", NODE),
        ("uid-c", Node(metadata=ObjectMeta(name="node-2"))),
        ("uid-a", NODE),
    )
)


@pytest.mark.parametrize(
    ("name", "claim", "promised", "joining"),
    [
        ("those that the node lets", allocated(), None, ["uid-b"]),
        ("not whom it is reserved for", allocated(HERE, OTHER), None, []),
        ("not whom nothing was promised", claim_with(), hold(), []),
        (
            "whom it was promised",
            claim_with(),
            hold(pods=("uid-a", "uid-b", "uid-c")),
            ["uid-b", "uid-c"],
        ),
        (
            "as many as it may have",
            allocated(HERE, *({"uid": f"uid-{number}"} for number in range(255))),
            None,
            [],
        ),
    ],
)
def test_a_write_reserves_a_claim_for_all_that_wait_for_it(
    name: str, claim: ResourceClaim, promised: Hold | None, joining: list[str]
) -> None:
    step = next_bind_step(
        claim, "claim", promised, HERE_POD, drivers=DRIVERS, is_unsettled=False, others=WAITING
    )

    assert isinstance(step, ClaimWrite)
    assert [entry.uid for entry in step.entries] == ["uid-a", *joining], name
    reserved = patch_of(step, now="2026-11-24T00:00:00Z", number=1)["status"]["reservedFor"]
    assert [pod.uid for pod in reserved][-1 - len(joining) :] == ["uid-a", *joining]


@pytest.mark.parametrize("finalizers", [(), (FINALIZER,)], ids=["to be protected", "protected"])
def test_no_device_is_given_while_the_fence_of_its_driver_is_open(
    finalizers: tuple[str, ...],
) -> None:
    """It was looked at when the device was promised, and the write came later."""
    result = {"request": "gpu", "driver": "gpu.example.com", "pool": "p", "device": "gpu-0"}
    allocation = convert({"devices": {"results": [result]}}, AllocationResult)
    promised = replace(hold(), allocation=allocation)
    claim = claim_with(finalizers=finalizers)

    def step(*drivers: str) -> object:
        return next_bind_step(
            claim, "claim", promised, HERE_POD, drivers=drivers, is_unsettled=False
        )

    assert isinstance(step("gpu.example.com"), ClaimWrite)
    rejection = step("nic.example.com")
    assert isinstance(rejection, Rejection)
    assert rejection.code is Code.DRIVER_NOT_OWNED


def test_a_claim_of_a_group_has_one_entry_for_all_its_pods() -> None:
    members = [Candidate(Consumer(f"uid-{number}", GROUP), NODE) for number in range(300)]
    promised = hold(pods=tuple(member.consumer.pod_uid for member in members))

    step = next_bind_step(
        claim_with(),
        "claim",
        promised,
        members[0],
        drivers=DRIVERS,
        is_unsettled=False,
        others=members,
    )

    assert isinstance(step, ClaimWrite)
    assert step.entries == (GROUP,)
    reserved = allocated(HERE, {"resource": "podgroups", "name": "ring", "uid": "uid-ring"})
    last = next_bind_step(reserved, "claim", None, members[-1], drivers=DRIVERS, is_unsettled=False)
    assert last is None, "the group has it, and nothing is written for its other pods"


@pytest.mark.parametrize(
    ("name", "claim", "want"),
    [
        ("a late release would take the devices", allocated(HERE, {"uid": "uid-a"}), Kind.SETTLE),
        ("the reservation settles it, too", allocated(HERE, OTHER), Kind.RESERVE),
        ("so does the allocation", claim_with(), Kind.ALLOCATE),
    ],
)
def test_no_pod_is_bound_while_an_earlier_write_of_its_claim_may_be_made(
    name: str, claim: ResourceClaim, want: Kind
) -> None:
    assert bind(claim, hold(), is_unsettled=True) == want, name


def release(
    claim: ResourceClaim | None,
    pods: tuple[ResourceClaimConsumerReference, ...] = (POD,),
    *,
    deallocate: bool,
) -> object:
    step = next_release_step(claim, "claim", pods, deallocate=deallocate)
    return None if step is None else patch_of(step, now="", number=0)["status"]


def test_the_last_pod_takes_the_devices_with_it() -> None:
    claim = allocated(HERE, {"uid": "uid-a"})

    assert release(claim, deallocate=True) == {
        "allocation": None,
        "reservedFor": None,
        "devices": None,
    }
    assert release(claim, deallocate=False) == {"reservedFor": None}


def test_others_keep_the_devices() -> None:
    claim = allocated(HERE, {"uid": "uid-a"}, OTHER)
    remaining = {"reservedFor": [convert(OTHER, ResourceClaimConsumerReference)]}

    assert release(claim, deallocate=True) == remaining
    assert release(allocated(HERE, OTHER), deallocate=True) is None
    assert release(claim_with(), deallocate=True) is None


def test_pods_of_a_group_are_taken_out_together() -> None:
    pods = tuple(ResourceClaimConsumerReference(name=uid, uid=uid) for uid in ("uid-a", "uid-c"))
    group = [{"uid": "uid-a"}, {"uid": "uid-c"}]
    remaining = {"reservedFor": [convert(OTHER, ResourceClaimConsumerReference)]}

    assert release(allocated(HERE, *group), pods, deallocate=True) == {
        "allocation": None,
        "reservedFor": None,
        "devices": None,
    }
    assert release(allocated(HERE, *group, OTHER), pods, deallocate=True) == remaining
    assert release(allocated(HERE, *group, OTHER), pods, deallocate=False) == remaining
    assert release(allocated(HERE, group[0], OTHER), pods, deallocate=True) == remaining
    assert release(allocated(HERE, OTHER), pods, deallocate=True) is None


@pytest.mark.parametrize(
    ("outcome", "want"),
    [
        (Outcome.UNKNOWN, Step.UNKNOWN),
        (Outcome.REFUSED, Step.UNKNOWN),
        (Outcome.CONFLICT, Step.WRITING),
        (Outcome.NOT_SENT, Step.RESERVED),
        (Outcome.GONE, Step.RESERVED),
    ],
)
def test_what_the_end_of_an_allocation_means_for_the_devices(outcome: Outcome, want: Step) -> None:
    """A copy of a refused write may meet a fence that knows the holder, as in seed 10703 of `make chaos`."""
    write = next_bind_step(
        claim_with(), "claim", hold(), HERE_POD, drivers=DRIVERS, is_unsettled=False
    )
    assert isinstance(write, ClaimWrite)

    ended = after(before(hold(), write), write, outcome)

    assert ended is not None
    assert ended.step is want


def test_only_a_write_that_may_land_is_settled() -> None:
    assert next_settle_step(claim_with(), "claim", hold(), is_unsettled=False) is None
    assert next_settle_step(None, "claim", hold(Step.UNKNOWN), is_unsettled=False) is None
    recreated = claim_with(uid="other")
    assert next_settle_step(recreated, "claim", hold(Step.UNKNOWN), is_unsettled=True) is None
    assert next_settle_step(allocated(), "claim", None, is_unsettled=True) is not None
    step = next_settle_step(claim_with(), "claim", hold(Step.UNKNOWN), is_unsettled=False)
    assert step is not None
    assert patch_of(step, now="", number=3)["metadata"] == {
        "uid": "claim",
        "resourceVersion": "7",
        "annotations": {"drawbridge.internal/settled": "3"},
    }


@pytest.mark.parametrize(
    ("status", "want"),
    [
        (409, Outcome.CONFLICT),
        (404, Outcome.GONE),
        (403, Outcome.REFUSED),
        (423, Outcome.NOT_SENT),
        (422, Outcome.REFUSED),
        (429, Outcome.REFUSED),
        (408, Outcome.UNKNOWN),
        (500, Outcome.UNKNOWN),
        (503, Outcome.UNKNOWN),
        (504, Outcome.UNKNOWN),
        (0, Outcome.UNKNOWN),
        (200, Outcome.UNKNOWN),
    ],
)
def test_what_an_error_proves(status: int, want: Outcome) -> None:
    assert outcome_of(KubeError("", status=status)) is want
