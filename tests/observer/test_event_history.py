"""The pods that are evaluated, the times, and their events."""

import json
from typing import Any, NamedTuple

import pytest

from allocator.simulation.pending_pod import Explanation
from clusterstate.event_history import EventHistory
from kube.api.core import Pod, is_unschedulable
from kube.api.events import Event
from kube.api.meta import convert
from kube.names import REQUEST_ANNOTATION
from observer.pods import project_pod
from observer.settings import ObserverSettings
from process.model.durations import PositiveDuration
from testing.documents import Document

SETTINGS = ObserverSettings(
    initial_delay=PositiveDuration(2),
    reevaluation_period=PositiveDuration(10),
    initial_event_interval=PositiveDuration(60),
    max_event_interval=PositiveDuration(200),
    numbers_event_interval=PositiveDuration(900),
)
NAME = ("team", "trainer")
TAKEN = Explanation(note="4 of 8 devices: taken", reasons=("allocated",), kind="a")
MORE_TAKEN = Explanation(note="5 of 8 devices: taken", reasons=("allocated",), kind="a")
TAINTED = Explanation(note="a taint", reasons=("taint",), kind="b")


def document(
    reason: str = "Unschedulable", *, uid: str = "1", claims: bool = True, **spec: Any
) -> Document:
    condition = {"type": "PodScheduled", "status": "False", "reason": reason}
    entries = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "a"}]} if claims else {}
    return {
        "metadata": {"namespace": "team", "name": "trainer", "uid": uid},
        "spec": {**entries, **spec},
        "status": {"phase": "Pending", "conditions": [condition]},
    }


def pod(reason: str = "Unschedulable", *, uid: str = "1") -> Pod:
    return convert(document(reason, uid=uid), Pod)


# --- which pods -----------------------------------------------------------------------------------


class Projected(NamedTuple):
    want: bool
    name: str
    pod: Document


EXTENDED = {"name": "main", "resources": {"limits": {"example.com/gpu": "1"}}}
PLAIN = {"name": "main", "resources": {"limits": {"cpu": "1"}}}
GONE = document() | {"metadata": {"name": "a", "deletionTimestamp": "2026-11-20T00:00:00Z"}}
PROJECTED = (
    Projected(True, "it has a claim", document()),
    Projected(
        True, "it asks for an extended resource", document(claims=False, containers=[EXTENDED])
    ),
    Projected(True, "an init container does", document(claims=False, initContainers=[EXTENDED])),
    Projected(False, "it asks for a CPU", document(claims=False, containers=[PLAIN])),
    Projected(False, "it has a node", document(nodeName="n1")),
    Projected(False, "it is being deleted", GONE),
)


@pytest.mark.parametrize("case", PROJECTED, ids=lambda case: case.name)
def test_project_pod(case: Projected) -> None:
    assert case.want == (project_pod(json.dumps(case.pod).encode()) is not None)


def test_of_the_annotations_the_record_of_a_translation_is_kept() -> None:
    translated = document()
    translated["metadata"]["annotations"] = {REQUEST_ANNOTATION: "{}", "example.com/other": "text"}

    projection = project_pod(json.dumps(translated).encode())

    assert projection is not None
    assert {REQUEST_ANNOTATION: "{}"} == projection.annotations


@pytest.mark.parametrize(
    ("want", "reason"),
    [
        (True, "Unschedulable"),
        (True, "SchedulerError"),
        (False, "SchedulingGated"),
        (False, ""),
    ],
)
def test_is_unschedulable(want: bool, reason: str) -> None:
    assert want is is_unschedulable(pod(reason))


# --- when -----------------------------------------------------------------------------------------


@pytest.fixture
def history() -> EventHistory:
    event_history = EventHistory(SETTINGS.history())
    event_history.replace(NAME, pod(), 0.0)
    return event_history


def test_a_pod_is_evaluated_after_the_initial_delay(history: EventHistory) -> None:
    assert [] == history.due(1, 1.9)
    assert history.next_due_s(1) == 2.0
    assert [NAME] == history.due(1, 2.0)


def test_a_pod_is_evaluated_again_when_something_has_changed(history: EventHistory) -> None:
    history.record_evaluation(NAME, TAKEN, 1, 2.0)

    assert [] == history.due(1, 2701.0)
    assert [] == history.due(2, 11.9)
    assert [NAME] == history.due(2, 12.0)


def test_pods_that_were_not_evaluated_come_first(history: EventHistory) -> None:
    history.record_evaluation(NAME, TAKEN, 1, 2.0)
    other = ("team", "other")
    history.replace(other, pod(uid="2"), 3.0)

    assert [other, NAME] == history.due(2, 20.0)


def test_a_pod_is_evaluated_when_the_scheduler_finds_no_node(history: EventHistory) -> None:
    history.replace(NAME, pod(""), 1.0)
    history.record_evaluation(NAME, None, 1, 2.0)
    assert [] == history.due(1, 3.0)

    history.replace(NAME, pod(), 3.0)

    assert [NAME] == history.due(1, 3.0)


@pytest.mark.parametrize("gone", [None, pod("SchedulingGated")])
def test_a_pod_that_no_longer_waits_is_forgotten(history: EventHistory, gone: Pod | None) -> None:
    history.replace(NAME, gone, 1.0)

    assert len(history) == 0
    assert history.record_evaluation(NAME, TAKEN, 1, 2.0) is None


def test_a_new_pod_of_the_same_name_starts_over(history: EventHistory) -> None:
    first = history.record_evaluation(NAME, TAKEN, 1, 2.0)
    history.replace(NAME, pod(uid="2"), 5.0)

    second = history.record_evaluation(NAME, TAKEN, 1, 7.0)

    assert first is not None
    assert second is not None
    assert 1 == second.series_count
    assert first.name != second.name


# --- events ---------------------------------------------------------------------------------------


def test_the_same_answer_is_one_event(history: EventHistory) -> None:
    assert history.record_evaluation(NAME, TAKEN, 1, 2.0) is not None
    assert history.record_evaluation(NAME, TAKEN, 2, 2000.0) is None
    assert history.suppressed == 1


def test_another_answer_becomes_an_event_after_a_while(history: EventHistory) -> None:
    history.record_evaluation(NAME, TAKEN, 1, 2.0)

    assert history.record_evaluation(NAME, TAINTED, 2, 30.0) is None
    assert history.next_due_s(2) == 62.0, "it is due although nothing changes any more"
    assert history.record_evaluation(NAME, TAINTED, 2, 62.0) is not None


def test_each_further_answer_waits_longer(history: EventHistory) -> None:
    answers, now_s, waits = (TAINTED, TAKEN), 2.0, []
    history.record_evaluation(NAME, TAKEN, 0, now_s)
    for number in range(5):
        began = now_s
        while history.record_evaluation(NAME, answers[number % 2], number, now_s) is None:
            now_s += 1
        waits.append(now_s - began)

    assert [60, 120, 200, 200, 200] == waits


def test_an_answer_in_which_only_numbers_changed_becomes_an_event_rarely(
    history: EventHistory,
) -> None:
    history.record_evaluation(NAME, TAKEN, 1, 2.0)

    assert history.record_evaluation(NAME, MORE_TAKEN, 2, 300.0) is None
    assert history.record_evaluation(NAME, MORE_TAKEN, 3, 902.0) is not None


def test_an_event_is_repeated_before_it_expires(
    history: EventHistory,
) -> None:
    first = history.record_evaluation(NAME, TAKEN, 1, 2.0)
    assert history.next_due_s(1) == 2702.0

    again = history.record_evaluation(NAME, TAKEN, 1, 2702.0)

    assert first is not None
    assert again is not None
    assert first.name == again.name
    assert 2 == again.series_count
    assert history.next_due_s(1) == 5402.0


def test_repetitions_do_not_delay_another_answer(history: EventHistory) -> None:
    for number in range(5):
        history.record_evaluation(NAME, TAKEN, 1, 2.0 + 2700 * number)

    assert history.record_evaluation(NAME, TAINTED, 2, 2.0 + 2700 * 4 + 60) is not None


def test_an_event_that_was_not_written_is_written_later(history: EventHistory) -> None:
    history.record_evaluation(NAME, TAKEN, 1, 2.0)
    history.forget_events(NAME)

    assert [NAME] == history.due(1, 12.0)
    assert history.record_evaluation(NAME, TAKEN, 1, 12.0) is not None


def test_a_pod_that_does_not_wait_for_devices_gets_no_event(history: EventHistory) -> None:
    assert history.record_evaluation(NAME, None, 1, 2.0) is None
    assert history.pods_by_reason() == {}


def test_pods_are_counted_by_reason(history: EventHistory) -> None:
    history.record_evaluation(NAME, TAKEN, 1, 2.0)
    history.replace(("team", "b"), pod(uid="2"), 0.0)
    both = Explanation(note="c", reasons=("taint", "allocated"), kind="c")
    history.record_evaluation(("team", "b"), both, 1, 2.0)

    assert history.pods_by_reason() == {"allocated": 2, "taint": 1}


# --- identities ---------------------------------------------------------------------------------


def test_a_restart_finds_its_first_event_again_whatever_the_numbers() -> None:
    def first(answer: Explanation) -> Event:
        event_history = EventHistory(SETTINGS.history())
        event_history.replace(NAME, pod(), 0.0)
        recorded = event_history.record_evaluation(NAME, answer, 1, 2.0)
        assert recorded is not None
        return recorded

    assert first(TAKEN).name == first(MORE_TAKEN).name
    assert first(TAKEN).name != first(TAINTED).name


def test_a_restart_finds_a_later_event_again() -> None:
    history, anew = EventHistory(SETTINGS.history()), EventHistory(SETTINGS.history())
    for entry in (history, anew):
        entry.replace(NAME, pod(), 0.0)
    history.record_evaluation(NAME, TAKEN, 1, 2.0)

    recorded, again = (
        history.record_evaluation(NAME, TAINTED, 2, 100.0),
        anew.record_evaluation(NAME, TAINTED, 1, 2.0),
    )

    assert recorded is not None
    assert again is not None
    assert recorded.name == again.name
    assert (2, 1) == (recorded.series_count, again.series_count)


def test_other_numbers_are_another_event(history: EventHistory) -> None:
    first, second = (
        history.record_evaluation(NAME, answer, 1, now_s)
        for answer, now_s in ((TAKEN, 2.0), (MORE_TAKEN, 2000.0))
    )

    assert first is not None
    assert second is not None
    assert first.name != second.name


def test_an_answer_that_comes_again_is_counted_in_its_event(history: EventHistory) -> None:
    now_s, recorded = 2.0, []
    for number in range(6):
        result = history.record_evaluation(NAME, (TAKEN, TAINTED)[number % 2], number, now_s)
        assert result is not None
        recorded.append(result)
        now_s += 1000

    assert [1, 2, 2, 2, 3, 3] == [event.series_count for event in recorded]
    assert recorded[0].name == recorded[2].name == recorded[4].name


def test_only_the_latest_events_of_a_pod_are_remembered(history: EventHistory) -> None:
    answers = [Explanation(note=str(entry), reasons=(), kind=str(entry)) for entry in range(100)]
    for number, answer in enumerate(answers):
        history.record_evaluation(NAME, answer, number, 1000.0 * number)

    again = history.record_evaluation(NAME, answers[0], 100, 1e6)

    assert again is not None
    assert 2 == again.series_count, "an earlier process may have written it"


def test_an_event_is_about_the_pod(history: EventHistory) -> None:
    event = history.record_evaluation(NAME, TAKEN, 1, 2.0)

    assert event is not None
    assert ("DevicesMissing", TAKEN.note) == (event.reason, event.note)
    assert "Pod/team/trainer" == str(event.regarding)
