"""A replay of any recording ends: each pod is placed or has failed, and each binding is counted once."""

from collections.abc import Sequence
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.model.feature_gates import Features
from allocator.replay.workload import Order
from answers.recording.course import read_course
from answers.recording.lines import Change, Entry, Mark, Moment, decode_entries, encode_entry
from cli.verbs.replay.answer import Job, build_question, compare_recorded, run_job
from testing import hostile_objects
from tests.cli.test_replay import gpu, node
from tests.cli.test_replay_recorded import gone, pod, put
from tests.cli.test_simulate import claim, device_class, holding, slice_of

pytestmark = pytest.mark.property

Document = dict[str, Any]


def template(name: str) -> Document:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"spec": claim("any")["spec"]},
    }


def extended(name: str) -> Document:
    mapped = device_class(name)
    mapped["spec"]["extendedResourceName"] = "example.com/gpu"
    return mapped


def with_uid(document: Document, uid: str) -> Document:
    return {**document, "metadata": {**document["metadata"], "uid": uid}}


def phase(document: Document, value: str, **status: Any) -> Document:
    return {**document, "status": {"phase": value, **status}}


FROM_TEMPLATE: Final[Document] = {
    "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]
}
GENERATED: Final[Document] = {
    "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "made"}]
}
DOCUMENTS: Final[Sequence[Document]] = (
    node("node-a"),
    node("node-a", cpu=2),
    node("node-b", disk="ssd"),
    {**node("node-b"), "spec": {"unschedulable": True}},
    {**node("node-b"), "status": {}},
    slice_of("node-a", gpu("gpu-0"), gpu("gpu-1")),
    slice_of("node-a", {"name": "gpu-0"}),
    slice_of("node-b"),
    slice_of("node-b", allNodes=True, nodeName=None),
    device_class(),
    device_class("other"),
    extended("gpu"),
    {
        **device_class(),
        "spec": {"selectors": [{"cel": {"expression": "device.attributes['a'].b"}}]},
    },
    {**device_class(), "spec": {"selectors": [{"cel": {"expression": "nonsense("}}]}},
    claim("a"),
    claim("a", 2),
    claim("a", -1),
    holding("a", "gpu-0", "node-a"),
    holding("a", "gpu-9", "nowhere"),
    holding("made", "gpu-1", "node-a"),
    with_uid(holding("a", "gpu-0", "node-b"), "another"),
    template("one"),
    pod("plain"),
    pod("plain", "-3"),
    pod("plain", on="node-a"),
    pod("plain", on="nowhere"),
    with_uid(pod("plain"), "another"),
    with_uid(pod("plain", on="node-b"), "another"),
    phase(pod("plain", on="node-a"), "Succeeded"),
    pod("claims", claims=["a"]),
    pod("claims", claims=["a"], on="node-a"),
    pod("shares", claims=["a"], on="node-a"),
    pod("made", **FROM_TEMPLATE),
    phase(pod("made", on="node-a", **FROM_TEMPLATE), "Running", **GENERATED),
    {
        **pod("extends"),
        "spec": {"containers": [{"resources": {"limits": {"example.com/gpu": "1"}}}]},
    },
    phase(
        pod("gated"), "Pending", conditions=[{"type": "PodScheduled", "reason": "SchedulingGated"}]
    ),
    *hostile_objects.cluster_objects(),
    *hostile_objects.namespaced_objects(),
)
BASE: Final = (
    node("node-a", disk="ssd"),
    node("node-b"),
    slice_of("node-a", gpu("gpu-0"), gpu("gpu-1")),
    slice_of("node-b"),
    device_class(),
    template("one"),
)
steps: Final = st.lists(
    st.tuples(
        st.sampled_from(DOCUMENTS), st.booleans() | st.just(True), st.sampled_from((0.0, 0.5, 30.0))
    ),
    max_size=14,
)


def course_of(taken: Sequence[tuple[Document, bool, float]], first: int) -> list[Entry]:
    """The entries of steps; the first ones are the first state."""
    entries: list[Entry] = [put(0.0, document) for document in BASE]
    second = 0.0
    for number, (document, stays, pause) in enumerate(taken):
        if number == first:
            entries.append(Moment(at=second, mark=Mark.STATE))
        second += pause
        change: Change = put(second, document) if stays else gone(second, document)
        entries.append(change)
    if first >= len(taken):
        entries.append(Moment(at=second, mark=Mark.STATE))
    return entries


@given(
    taken=steps,
    first=st.integers(0, 14),
    strategy=st.sampled_from(("stock", "FragmentationAware", "BestFit")),
)
def test_each_pod_is_placed_or_has_failed(
    taken: Sequence[tuple[Document, bool, float]], first: int, strategy: str
) -> None:
    lines = [encode_entry(entry) for entry in course_of(taken, first)]

    recorded = read_course(decode_entries(lines, "day.json"), "day.json")
    question = build_question(
        recorded.course.arriving, Order.ARRIVAL, recorded.state, Features(), course=recorded.course
    )
    result = run_job(Job(strategy=strategy, seed=0), question)
    agreement = compare_recorded(question)

    assert result.pods.placed + result.pods.failed == len(recorded.course.arriving)
    assert agreement is not None
    outcome = agreement.outcome.pods
    assert outcome.placed + outcome.failed == len(recorded.course.arriving)
    compared = agreement.best + sum(agreement.otherwise.values())
    assert compared == agreement.bindings
    assert compared + agreement.other_schedulers == outcome.placed
