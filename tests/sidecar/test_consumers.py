"""The index of pods and their claims, as both come and go."""

from typing import Any

from msgspec.structs import replace

from kube.api.core import Pod
from kube.api.meta import convert
from kube.api.resource import ResourceClaim
from sidecar.state.consumers import ConsumerIndex

GPU = ("default", "gpu")


def pod(name: str, priority: int = 0, node: str = "node-1", *, is_deleted: bool = False) -> Pod:
    return convert(
        {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": f"uid-{name}",
                "deletionTimestamp": "2026-11-21T00:00:00Z" if is_deleted else None,
            },
            "spec": {"priority": priority, "nodeName": node},
        },
        Pod,
    )


def claim(*users: str, resource: str = "pods", is_allocated: bool = True) -> ResourceClaim:
    status: dict[str, Any] = {"allocation": {}} if is_allocated else {}
    status["reservedFor"] = [
        {"resource": resource, "name": user, "uid": f"uid-{user}"} for user in users
    ]
    return convert(
        {"metadata": {"name": "gpu", "namespace": "default"}, "status": status}, ResourceClaim
    )


class CountedUid(str):
    """The UID of a pod that counts its look-ups and comparisons with those in a set."""

    lookups = 0

    __slots__ = ()

    def __hash__(self) -> int:
        CountedUid.lookups += 1
        return super().__hash__()


class Followed:
    def __init__(self) -> None:
        self.claims: dict[tuple[str, str], ResourceClaim] = {}
        self.index = ConsumerIndex(self.claims)
        self._pods: dict[str, Pod] = {}

    def claim(self, new: ResourceClaim | None) -> None:
        old = self.claims.pop(GPU, None)
        if new is not None:
            self.claims[GPU] = new
        self.index.replace_claim(GPU, old, new)

    def pod(self, name: str, new: Pod | None) -> None:
        self.index.replace_pod(self._pods.pop(name, None), new)
        if new is not None:
            self._pods[name] = new

    def being_released(self) -> list[tuple[str, str]]:
        return sorted(self.index.releasing)


def test_claims_are_found_by_their_pods() -> None:
    followed = Followed()
    followed.claim(claim("a", "b"))
    followed.claim(claim("b"))

    assert followed.index.claims_of == {"uid-b": {GPU}}
    followed.claim(None)
    assert followed.index.claims_of == {}


def test_the_lowest_priority_is_that_of_bound_pods() -> None:
    followed = Followed()
    assert followed.index.lowest_priority is None
    followed.pod("a", pod("a", 5))
    followed.pod("b", pod("b", 3))
    followed.pod("c", pod("c", 1, node=""))
    assert followed.index.lowest_priority == 3

    followed.pod("b", None)

    assert followed.index.lowest_priority == 5


def test_pods_that_terminate_are_those_that_are_bound_and_deleted() -> None:
    followed = Followed()
    followed.pod("a", pod("a"))
    followed.pod("b", pod("b", node="", is_deleted=True))
    assert followed.index.terminating == {}

    followed.pod("a", pod("a", is_deleted=True))
    assert followed.index.terminating.keys() == {"uid-a"}

    followed.pod("a", None)
    assert followed.index.terminating == {}


def test_a_claim_is_being_released_once_all_its_pods_are_gone() -> None:
    followed = Followed()
    followed.pod("a", pod("a"))
    followed.pod("b", pod("b"))
    followed.claim(claim("a", "b"))
    followed.pod("a", None)
    assert followed.being_released() == []

    followed.pod("b", None)
    assert followed.being_released() == [GPU]

    followed.claim(claim("a", "b", "c"))
    followed.pod("c", pod("c"))
    assert followed.being_released() == [], "another pod has it, too"
    followed.pod("c", None)
    assert followed.being_released() == [GPU]

    followed.claim(claim(is_allocated=False))
    assert followed.being_released() == []


def test_a_claim_that_was_released_in_one_step_with_its_pod_is_not_waited_for() -> None:
    followed = Followed()
    followed.claim(claim("a"))
    assert followed.being_released() == [GPU]

    followed.pod("a", pod("a"))

    assert followed.being_released() == []


def test_consumers_that_are_no_pods_are_not_gone() -> None:
    followed = Followed()
    followed.claim(claim("a", resource="podgroups"))

    assert followed.being_released() == []


def test_a_claim_costs_its_own_pods_and_not_all_pods() -> None:
    followed = Followed()
    for number in range(100):
        name = f"pod-{number}"
        new = pod(name)
        metadata = replace(new.metadata, uid=CountedUid(new.metadata.uid))
        followed.pod(name, replace(new, metadata=metadata))
    before = CountedUid.lookups

    followed.claim(claim("pod-99"))
    assert not followed.being_released()
    followed.claim(claim("stranger"))
    assert followed.being_released() == [GPU]

    assert CountedUid.lookups - before < 10
