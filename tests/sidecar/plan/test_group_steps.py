"""The checks before a group is written, and the writes taken back if they were in vain."""

from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from kube.api.core import Node
from kube.api.meta import ObjectMeta, convert
from kube.api.resource import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
)
from sidecar.commit.group_steps import (
    GroupPod,
    MemberClaims,
    TakeBack,
    incomplete_commit,
    joined,
    next_take_back_step,
    rejections_of,
    split,
    take_backs_of,
)
from sidecar.commit.ledger import Hold, Step
from sidecar.commit.steps import ClaimWrite, ConsumedClaim, Kind
from sidecar.commit.writes import MAX_CONSUMERS, Consumer
from sidecar.model.rejections import Code

NODE = Node(metadata=ObjectMeta(name="node-1"))
ELSEWHERE = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-2"]}]}
DRIVER = "gpu.example.com"


def reference(uid: str) -> ResourceClaimConsumerReference:
    return ResourceClaimConsumerReference(resource="pods", name=uid, uid=uid)


def claim(name: str, *pods: str, has_devices: bool = False, uid: str = "") -> ResourceClaim:
    status: dict[str, Any] = {"reservedFor": [{"uid": pod, "name": pod} for pod in pods]}
    if has_devices or pods:
        status["allocation"] = {}
    metadata = {"name": name, "namespace": "default", "uid": uid or name, "resourceVersion": "7"}
    return convert({"metadata": metadata, "status": status}, ResourceClaim)


def hold(name: str, *pods: str, step: Step = Step.RESERVED, driver: str = DRIVER) -> Hold:
    result = DeviceRequestAllocationResult(request="r", driver=driver, pool="p", device="d")
    allocation = AllocationResult(devices=DeviceAllocationResult(results=(result,)))
    key = ("default", name)
    return Hold(
        name=key, uid=name, allocation=allocation, pods=frozenset(pods), step=step, base="7"
    )


GROUP = ResourceClaimConsumerReference(
    api_group="scheduling.k8s.io", resource="podgroups", name="ring", uid="ring"
)


def member(uid: str, *claims: str, node: Node | None = NODE) -> GroupPod:
    used = (ConsumedClaim(("default", name), name, reference(uid)) for name in claims)
    return GroupPod(uid, node, tuple(used))


def by_name(*claims: ResourceClaim) -> dict[tuple[str, str], ResourceClaim]:
    return {(claim.metadata.namespace, claim.metadata.name): claim for claim in claims}


ELSEWHERE_CLAIM = convert(
    {
        "metadata": {"name": "x", "namespace": "default", "uid": "x", "resourceVersion": "7"},
        "status": {"allocation": {"nodeSelector": {"nodeSelectorTerms": [ELSEWHERE]}}},
    },
    ResourceClaim,
)


class Check(NamedTuple):
    name: str
    claim: ResourceClaim | None
    hold: Hold | None
    want: Code | None
    node: Node | None = NODE


CHECKS = (
    Check("devices are promised", claim("x"), hold("x", "a"), None),
    Check("it is allocated already", claim("x", has_devices=True), None, None),
    Check("it is gone", None, hold("x", "a"), Code.CLAIM_NOT_FOUND),
    Check("it is another one", claim("x", uid="y"), hold("x", "a"), Code.CLAIM_NOT_FOUND),
    Check("somebody allocated it elsewhere", ELSEWHERE_CLAIM, None, Code.CLAIM_NOT_AVAILABLE),
    Check("nothing is promised any more", claim("x"), None, Code.DEVICES_GONE),
    Check("it is promised to another pod", claim("x"), hold("x", "b"), Code.DEVICES_GONE),
    Check("its node is lost", claim("x"), hold("x", "a"), Code.DEVICES_GONE, node=None),
    Check(
        "the fence of its driver has opened",
        claim("x"),
        hold("x", "a", driver="other.example.com"),
        Code.DRIVER_NOT_OWNED,
    ),
)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_a_pod_is_checked_before_anything_is_written(check: Check) -> None:
    claims = {} if check.claim is None else by_name(check.claim)
    holds = {} if check.hold is None else {check.hold.uid: check.hold}
    members = [member("a", "x", node=check.node), member("without-claims")]

    rejections = rejections_of(members, claims, holds, frozenset({DRIVER}))

    assert {uid: rejection.code for uid, rejection in rejections.items()} == (
        {} if check.want is None else {"a": check.want}
    )


def test_a_claim_has_as_many_pods_as_the_api_allows() -> None:
    pods = [f"pod-{number:03}" for number in range(MAX_CONSUMERS + 1)]
    holds = {"x": hold("x", *pods)}
    members = [member(uid, "x") for uid in pods]

    rejections = rejections_of(members, by_name(claim("x")), holds, frozenset({DRIVER}))

    assert {uid: rejection.code for uid, rejection in rejections.items()} == {
        pods[-1]: Code.TOO_MANY_CONSUMERS
    }
    # A pod for which the claim is reserved already takes no further place.
    shared = by_name(claim("x", pods[-1], has_devices=True))
    assert not rejections_of(members[1:], shared, {}, frozenset({DRIVER}))


def test_a_group_is_one_consumer_of_a_claim_that_it_shares() -> None:
    pods = [f"pod-{number:03}" for number in range(MAX_CONSUMERS + 44)]
    shared = ConsumedClaim(("default", "x"), "x", GROUP)
    members = [GroupPod(uid, NODE, (shared,)) for uid in pods]

    assert not rejections_of(
        members, by_name(claim("x")), {"x": hold("x", *pods)}, frozenset({DRIVER})
    )


def taken(name: str, *pods: str, deallocate: bool = True) -> TakeBack:
    return TakeBack(
        name=("default", name),
        uid=name,
        pods=tuple(Consumer(uid, reference(uid)) for uid in pods),
        deallocate=deallocate,
    )


@pytest.mark.parametrize(
    ("name", "claims", "want"),
    [
        (
            "each claim once, of all pods that share it",
            [claim("own"), claim("shared")],
            [taken("own", "a"), taken("shared", "a", "b")],
        ),
        (
            "a claim that was allocated before keeps its devices",
            [claim("own"), claim("shared", "z")],
            [taken("own", "a"), taken("shared", "a", "b", deallocate=False)],
        ),
        (
            "whoever was in it before stays in it",
            [claim("own", "a"), claim("shared", "a", "z")],
            [taken("shared", "b", deallocate=False)],
        ),
    ],
)
def test_take_backs_of(name: str, claims: list[ResourceClaim], want: list[TakeBack]) -> None:
    members = [member("a", "own", "shared"), member("b", "shared"), member("c")]

    assert list(take_backs_of(members, by_name(*claims), {})) == want, name


def test_what_an_earlier_attempt_took_is_taken_back_by_the_next() -> None:
    members = [member("a", "x"), member("b", "x")]
    pending = {"x": taken("x", "a", "gone")}

    for written in (claim("x"), claim("x", "a"), claim("x", "a", "z")):
        (take_back,) = take_backs_of(members, by_name(written), pending)
        assert take_back == taken("x", "a", "b"), written

    pending = {"x": taken("x", "a", deallocate=False)}
    (take_back,) = take_backs_of(members, by_name(claim("x", "a", "b")), pending)
    assert take_back == taken("x", "a", deallocate=False), "b was in it before"


def test_what_is_left_of_attempts_is_joined() -> None:
    """The second attempt at a shared claim took the place of the first, and a pod stayed in the claim for ever."""
    first, second = taken("x", "a", deallocate=False), taken("x", "b")

    assert joined(first, second) == taken("x", "a", "b")
    assert joined(second, first) == taken("x", "b", "a")
    assert joined(None, first) == first


def test_a_claim_of_a_group_is_taken_back_by_those_who_came_later() -> None:
    """The pods of the attempt before are gone, and nobody takes back the entry that these use, too."""
    shared = ConsumedClaim(("default", "x"), "x", GROUP)
    gone = TakeBack(name=shared.name, uid="x", pods=(Consumer("gone", GROUP),), deallocate=True)

    take_backs = take_backs_of(
        [GroupPod("new", NODE, (shared,))], by_name(claim("x", GROUP.uid)), {"x": gone}
    )

    assert take_backs == (replace(gone, pods=(Consumer("new", GROUP),)),)


def test_pods_that_are_bound_keep_their_part() -> None:
    assert split(taken("x", "a", "b"), {"a", "z"}) == (taken("x", "a"), taken("x", "b"))
    assert split(taken("x", "a"), {"a"}) == (taken("x", "a"), None)
    assert split(taken("x", "a"), ()) == (None, taken("x", "a"))


class TakeBackCase(NamedTuple):
    name: str
    claim: ResourceClaim | None
    want: Kind | bool
    hold: Hold | None = None
    is_unsettled: bool = False
    deallocate: bool = True


STEPS = (
    TakeBackCase("what was written is taken back", claim("x", "a"), Kind.DEALLOCATE),
    TakeBackCase("what others have too stays theirs", claim("x", "a", "z"), Kind.DEALLOCATE),
    TakeBackCase("devices of before stay", claim("x", "a"), Kind.LEAVE, deallocate=False),
    TakeBackCase("it is taken back already", claim("x"), want=True),
    TakeBackCase("others alone have it", claim("x", "z"), want=True),
    TakeBackCase("it is gone", None, want=True),
    TakeBackCase("it is another one", claim("x", "a", uid="y"), want=True),
    TakeBackCase(
        "an unknown write is settled first", claim("x"), False, hold("x", step=Step.UNKNOWN)
    ),
    TakeBackCase("so is one under way", claim("x"), False, hold("x", step=Step.WRITING)),
    TakeBackCase("so is a release", claim("x", "a"), want=False, is_unsettled=True),
    TakeBackCase("a promise is none", claim("x"), True, hold("x", "a")),
)


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_next_take_back_step(step: TakeBackCase) -> None:
    take_back = taken("x", "a", "b", deallocate=step.deallocate)

    got = next_take_back_step(
        take_back, step.claim, step.hold, used=(), is_unsettled=step.is_unsettled
    )

    assert (got.kind if isinstance(got, ClaimWrite) else got) == step.want


@pytest.mark.parametrize(
    ("used", "want"),
    [((), Kind.DEALLOCATE), (("ring",), True), (("other",), Kind.DEALLOCATE)],
)
def test_the_entry_of_a_group_leaves_with_its_last_pod(
    used: tuple[str, ...], want: Kind | bool
) -> None:
    take_back = TakeBack(
        name=("default", "x"),
        uid="x",
        pods=(Consumer("a", GROUP), Consumer("b", GROUP)),
        deallocate=True,
    )

    got = next_take_back_step(take_back, claim("x", "ring"), None, used=used, is_unsettled=False)

    assert (got.kind if isinstance(got, ClaimWrite) else got) == want
    if isinstance(got, ClaimWrite):
        assert got.entries == (GROUP,)


@pytest.mark.parametrize(
    ("is_bound", "want"),
    [
        (False, [("shared", ("a", "b"))]),
        (True, []),
    ],
)
def test_a_new_leader_leaves_the_claim_of_a_group_to_bound_pods(
    *, is_bound: bool, want: list[tuple[str, tuple[str, ...]]]
) -> None:
    shared = claim("shared", "ring")
    members = [
        MemberClaims("a", is_bound=False, claims=((shared, GROUP),)),
        MemberClaims("b", is_bound=is_bound, claims=((shared, GROUP),)),
        MemberClaims("c", is_bound=False, claims=((None, reference("c")),)),
    ]

    got = incomplete_commit(3, members)

    assert [(back.name[1], tuple(pod.pod_uid for pod in back.pods)) for back in got] == want


def found(uid: str, *claims: ResourceClaim | None, is_bound: bool = False) -> MemberClaims:
    return MemberClaims(uid, is_bound, tuple((claim, reference(uid)) for claim in claims))


SHARED = claim("shared", "a", "b")


@pytest.mark.parametrize(
    ("name", "min_count", "members", "want"),
    [
        (
            "a commit that was complete stays",
            2,
            [found("a", claim("x", "a")), found("b", claim("y", "b"))],
            [],
        ),
        (
            "one that was not is taken back",
            2,
            [found("a", claim("x", "a")), found("b", claim("y"))],
            [taken("x", "a")],
        ),
        (
            "bound pods count, and keep their devices",
            3,
            [
                found("a", claim("x", "a")),
                found("b", claim("y", "b"), is_bound=True),
                found("c", None),
            ],
            [taken("x", "a")],
        ),
        (
            "with the bound ones it was complete",
            2,
            [found("a", claim("x", "a")), found("b", claim("y", "b"), is_bound=True)],
            [],
        ),
        (
            "a pod with one of two claims is not whole, and gives it back",
            1,
            [found("a", claim("x", "a"), claim("y"))],
            [taken("x", "a")],
        ),
        (
            "a pod without claims is bound without a write",
            2,
            [found("a", claim("x", "a")), found("launcher")],
            [],
        ),
        (
            "a shared claim is taken back from all of them",
            3,
            [found("a", SHARED), found("b", SHARED), found("c", claim("y"))],
            [taken("shared", "a", "b")],
        ),
        (
            "a claim that others have is left to them",
            3,
            [found("a", claim("shared", "a", "z")), found("b", claim("y", "b"))],
            [taken("y", "b")],
        ),
        (
            "and so is one that a bound pod has",
            3,
            [found("a", SHARED), found("b", SHARED, is_bound=True)],
            [],
        ),
        (
            "devices that nobody has reserved are given back",
            2,
            [found("a", claim("x", has_devices=True)), found("b", claim("y"))],
            [taken("x", "a")],
        ),
    ],
)
def test_what_a_new_leader_takes_back(
    name: str, min_count: int, members: list[MemberClaims], want: list[TakeBack]
) -> None:
    assert list(incomplete_commit(min_count, members)) == want, name


def test_pods_that_are_gone_keep_no_claim_of_an_incomplete_commit() -> None:
    """Pod z was deleted while the claim was written; its entry is removed by kube-controller-manager."""
    shared = claim("shared", "a", "z")
    members = [found("a", shared), found("b", claim("y"))]

    assert list(incomplete_commit(2, members)) == []
    assert list(incomplete_commit(2, members, {"z"})) == [taken("shared", "a")]
