"""The order of pods that were turned away."""

from kube.api.core import Pod
from kube.api.meta import ObjectMeta
from sidecar.plan.waiting import WaitingPods
from sidecar.state.projections import project_pod


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
