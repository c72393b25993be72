"""The order of pods that were turned away."""

from kube.api.core import Pod
from kube.api.meta import ObjectMeta
from sidecar.model.rejections import Code, Rejection, failed_rejection, unresolvable
from sidecar.plan.waiting import WaitingPods
from sidecar.state.projections import project_pod
from testing.sidecar.groups import group_request, member


def created(name: str, time: str) -> Pod:
    return Pod(metadata=ObjectMeta(name=name, namespace="team", uid=name, creation_timestamp=time))


def test_a_new_leader_takes_the_oldest_pod_for_the_one_that_waits_for_longest() -> None:
    waiting = WaitingPods(lambda: 0.0)

    waiting.begin(
        [created("a-new", "2026-01-01T00:00:09Z"), created("old", "2026-01-01T00:00:01Z")]
    )

    names = [entry.pod.metadata.name for entry in sorted(waiting.due(1), key=lambda e: e.number)]
    assert names == ["old", "a-new"]


def test_the_sidecar_keeps_the_age_of_pods() -> None:
    metadata = b'{"name": "p", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}'
    spec = b'{"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}'

    pod = project_pod(b'{"metadata": %b, "spec": %b}' % (metadata, spec))

    assert pod is not None
    assert pod.metadata.creation_timestamp == "2026-01-01T00:00:00Z"


def rejected(code: Code = Code.GROUP_DOES_NOT_FIT) -> Rejection:
    return unresolvable(code, "no")


def test_a_group_is_one_entry_until_none_of_its_pods_waits() -> None:
    waiting = WaitingPods(lambda: 0.0)
    pods = [member("b", "b"), member("a", "a"), member("0-launcher")]
    # A pod that was tried by itself before is no entry of its own any more.
    waiting.take(pods[0], rejected())
    waiting.take_group(group_request(*pods), rejected())

    (entry,) = waiting.due(1)
    assert (entry.uid, entry.pod.metadata.name) == ("group-ring", "a")
    assert entry.names == ("default/b", "default/a", "default/0-launcher")
    assert waiting.count(Code.GROUP_DOES_NOT_FIT) == 3

    waiting.end("uid-a")
    (entry,) = waiting.due(2)
    assert (entry.pod.metadata.name, len(entry.names)) == ("b", 2)
    waiting.end("uid-b")
    waiting.end("uid-0-launcher")
    assert len(waiting) == 0


def test_only_pods_without_a_place_go_on_waiting() -> None:
    waiting = WaitingPods(lambda: 0.0)
    pods = [member("a", "a"), member("b", "b")]
    waiting.take_group(group_request(*pods), rejected())

    waiting.take_group(group_request(pods[1], placed=["node-1"]), None)
    (entry,) = waiting.due(1)
    assert (entry.names, entry.code) == (("default/b",), Code.GROUP_NOT_NEEDED)
    waiting.take_group(group_request(placed=["node-1", "node-1"]), None)
    assert len(waiting) == 0


def test_an_attempt_that_is_repeated_anyway_is_not_waited_for() -> None:
    waiting = WaitingPods(lambda: 0.0)

    waiting.take_group(group_request(member("a", "a")), failed_rejection(Code.CLAIMS_BEHIND, "no"))

    assert len(waiting) == 0


def test_members_of_groups_do_not_wait_by_themselves_for_a_new_leader() -> None:
    waiting = WaitingPods(lambda: 0.0)

    waiting.begin([member("a", "a"), created("single", "2026-01-01T00:00:09Z")])

    assert [entry.names for entry in waiting.due(1)] == [("team/single",)]
