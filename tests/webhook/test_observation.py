"""Which pods are told, when, once, and in what event."""

import json
from typing import Any, NamedTuple

import pytest

from allocator.waiting import MAX_NOTE, Answer
from kube.api.core import Pod
from kube.api.meta import view
from tests.builders import Document
from webhook.observation import (
    REASON,
    Ledger,
    Telling,
    event_of,
    is_unschedulable,
    kept_claim,
    kept_node,
    kept_pod,
    repetition_of,
)
from webhook.settings import ObserveSettings

SETTINGS = ObserveSettings(
    settle_seconds=2,
    look_again_seconds=10,
    tell_again_seconds=60,
    tell_again_most_seconds=200,
    numbers_seconds=900,
)
NAME = ("team", "trainer")
TAKEN = Answer(note="4 of 8 devices: taken", reasons=("taken",), kind="a")
MORE_TAKEN = Answer(note="5 of 8 devices: taken", reasons=("taken",), kind="a")
TAINTED = Answer(note="a taint", reasons=("taint",), kind="b")


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
    return view(document(reason, uid=uid), Pod)


# --- what is kept ---------------------------------------------------------------------------------


class Kept(NamedTuple):
    want: bool
    name: str
    pod: Document


EXTENDED = {"name": "main", "resources": {"limits": {"example.com/gpu": "1"}}}
PLAIN = {"name": "main", "resources": {"limits": {"cpu": "1"}}}
GONE = document() | {"metadata": {"name": "a", "deletionTimestamp": "2026-11-20T00:00:00Z"}}
KEPT = (
    Kept(True, "it has a claim", document()),
    Kept(True, "it asks for an extended resource", document(claims=False, containers=[EXTENDED])),
    Kept(True, "an init container does", document(claims=False, initContainers=[EXTENDED])),
    Kept(False, "it asks for a CPU", document(claims=False, containers=[PLAIN])),
    Kept(False, "it has a node", document(nodeName="n1")),
    Kept(False, "it is being deleted", GONE),
)


@pytest.mark.parametrize("case", KEPT, ids=lambda case: case.name)
def test_kept_pod(case: Kept) -> None:
    assert case.want == (kept_pod(json.dumps(case.pod).encode()) is not None)


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


def test_heartbeats_change_nothing_of_a_node() -> None:
    def beat(number: int) -> bytes:
        conditions = [{"type": "Ready", "lastHeartbeatTime": f"2026-11-20T00:00:{number:02d}Z"}]
        metadata = {"name": "a", "resourceVersion": str(number), "labels": {"a": "b"}}
        return json.dumps({"metadata": metadata, "status": {"conditions": conditions}}).encode()

    assert kept_node(beat(1)) == kept_node(beat(2))


def test_an_allocated_claim_is_kept_without_what_it_asked_for() -> None:
    result = {"request": "gpu", "driver": "a.b", "pool": "p", "device": "d"}
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
    claim: Document = {
        "metadata": {"name": "a", "namespace": "b", "labels": {"c": "d"}},
        "spec": {"devices": {"requests": [request]}},
    }

    waiting = kept_claim(json.dumps(claim).encode())
    claim["status"] = {"allocation": {"devices": {"results": [result]}}}
    held = kept_claim(json.dumps(claim).encode())

    assert waiting.spec.devices.requests
    assert not held.spec.devices.requests
    assert held.status is not None
    assert held.status.allocation is not None
    assert held.status.allocation.devices.results
    assert waiting.metadata == held.metadata


# --- when -----------------------------------------------------------------------------------------


@pytest.fixture
def ledger() -> Ledger:
    made = Ledger(SETTINGS)
    made.replace(NAME, pod(), 0.0)
    return made


def test_a_pod_is_looked_at_when_it_has_waited_a_moment(ledger: Ledger) -> None:
    assert [] == ledger.due(1, 1.9)
    assert ledger.next_s(1) == 2.0
    assert [NAME] == ledger.due(1, 2.0)


def test_a_pod_is_looked_at_again_when_something_has_changed(ledger: Ledger) -> None:
    ledger.looked(NAME, TAKEN, 1, 2.0)

    assert [] == ledger.due(1, 2701.0)
    assert [] == ledger.due(2, 11.9)
    assert [NAME] == ledger.due(2, 12.0)


def test_pods_that_were_not_looked_at_come_first(ledger: Ledger) -> None:
    ledger.looked(NAME, TAKEN, 1, 2.0)
    other = ("team", "other")
    ledger.replace(other, pod(uid="2"), 3.0)

    assert [other, NAME] == ledger.due(2, 20.0)


def test_a_pod_is_looked_at_when_the_scheduler_gives_up(ledger: Ledger) -> None:
    ledger.replace(NAME, pod(""), 1.0)
    ledger.looked(NAME, None, 1, 2.0)
    assert [] == ledger.due(1, 3.0)

    ledger.replace(NAME, pod(), 3.0)

    assert [NAME] == ledger.due(1, 3.0)


@pytest.mark.parametrize("gone", [None, pod("SchedulingGated")])
def test_who_does_not_wait_is_forgotten(ledger: Ledger, gone: Pod | None) -> None:
    ledger.replace(NAME, gone, 1.0)

    assert len(ledger) == 0
    assert ledger.looked(NAME, TAKEN, 1, 2.0) is None


def test_a_namesake_begins_anew(ledger: Ledger) -> None:
    first = ledger.looked(NAME, TAKEN, 1, 2.0)
    ledger.replace(NAME, pod(uid="2"), 5.0)

    second = ledger.looked(NAME, TAKEN, 1, 7.0)

    assert first is not None
    assert second is not None
    assert second.is_first
    assert first.event != second.event


# --- once -----------------------------------------------------------------------------------------


def test_the_same_answer_is_told_once(ledger: Ledger) -> None:
    assert ledger.looked(NAME, TAKEN, 1, 2.0) is not None
    assert ledger.looked(NAME, TAKEN, 2, 2000.0) is None
    assert ledger.suppressed == 1


def test_another_answer_is_told_after_a_while(ledger: Ledger) -> None:
    ledger.looked(NAME, TAKEN, 1, 2.0)

    assert ledger.looked(NAME, TAINTED, 2, 30.0) is None
    assert ledger.next_s(2) == 62.0, "it is not forgotten although nothing changes any more"
    assert ledger.looked(NAME, TAINTED, 2, 62.0) is not None


def test_each_further_answer_waits_longer(ledger: Ledger) -> None:
    answers, now_s, waits = (TAINTED, TAKEN), 2.0, []
    ledger.looked(NAME, TAKEN, 0, now_s)
    for number in range(5):
        began = now_s
        while ledger.looked(NAME, answers[number % 2], number, now_s) is None:
            now_s += 1
        waits.append(now_s - began)

    assert [60, 120, 200, 200, 200] == waits


def test_numbers_alone_are_told_rarely(ledger: Ledger) -> None:
    ledger.looked(NAME, TAKEN, 1, 2.0)

    assert ledger.looked(NAME, MORE_TAKEN, 2, 300.0) is None
    assert ledger.looked(NAME, MORE_TAKEN, 3, 902.0) is not None


def test_a_pod_that_waits_on_is_reminded_before_its_event_is_forgotten(ledger: Ledger) -> None:
    first = ledger.looked(NAME, TAKEN, 1, 2.0)
    assert ledger.next_s(1) == 2702.0

    again = ledger.looked(NAME, TAKEN, 1, 2702.0)

    assert first is not None
    assert again is not None
    assert first.event == again.event
    assert again.repeats == 1
    assert ledger.next_s(1) == 5402.0


def test_reminders_put_no_change_off(ledger: Ledger) -> None:
    for number in range(5):
        ledger.looked(NAME, TAKEN, 1, 2.0 + 2700 * number)

    assert ledger.looked(NAME, TAINTED, 2, 2.0 + 2700 * 4 + 60) is not None


def test_who_could_not_be_told_is_told_later(ledger: Ledger) -> None:
    ledger.looked(NAME, TAKEN, 1, 2.0)
    ledger.failed(NAME)

    assert [NAME] == ledger.due(1, 12.0)
    assert ledger.looked(NAME, TAKEN, 1, 12.0) is not None


def test_who_waits_for_no_devices_is_told_nothing(ledger: Ledger) -> None:
    assert ledger.looked(NAME, None, 1, 2.0) is None
    assert ledger.reasons() == {}


def test_pods_are_counted_by_reason(ledger: Ledger) -> None:
    ledger.looked(NAME, TAKEN, 1, 2.0)
    ledger.replace(("team", "b"), pod(uid="2"), 0.0)
    both = Answer(note="c", reasons=("taint", "taken"), kind="c")
    ledger.looked(("team", "b"), both, 1, 2.0)

    assert ledger.reasons() == {"taken": 2, "taint": 1}


# --- names of events ------------------------------------------------------------------------------


def test_a_restart_finds_its_first_event_again_whatever_the_numbers() -> None:
    def first(answer: Answer) -> Telling:
        made = Ledger(SETTINGS)
        made.replace(NAME, pod(), 0.0)
        told = made.looked(NAME, answer, 1, 2.0)
        assert told is not None
        return told

    assert first(TAKEN).event == first(MORE_TAKEN).event
    assert first(TAKEN).event != first(TAINTED).event


def test_a_restart_finds_a_later_event_again() -> None:
    ledger, anew = Ledger(SETTINGS), Ledger(SETTINGS)
    for each in (ledger, anew):
        each.replace(NAME, pod(), 0.0)
    ledger.looked(NAME, TAKEN, 1, 2.0)

    told, again = ledger.looked(NAME, TAINTED, 2, 100.0), anew.looked(NAME, TAINTED, 1, 2.0)

    assert told is not None
    assert again is not None
    assert told.event == again.event
    assert (False, True) == (told.is_first, again.is_first)


def test_other_numbers_are_another_event(ledger: Ledger) -> None:
    first, second = (
        ledger.looked(NAME, answer, 1, now_s)
        for answer, now_s in ((TAKEN, 2.0), (MORE_TAKEN, 2000.0))
    )

    assert first is not None
    assert second is not None
    assert first.event != second.event
    assert second.repeats == 0


def test_an_answer_that_comes_again_is_counted_in_its_event(ledger: Ledger) -> None:
    now_s, told = 2.0, []
    for number in range(6):
        found = ledger.looked(NAME, (TAKEN, TAINTED)[number % 2], number, now_s)
        assert found is not None
        told.append(found)
        now_s += 1000

    assert [0, 0, 1, 1, 2, 2] == [each.repeats for each in told]
    assert told[0].event == told[2].event == told[4].event
    assert repetition_of(told[4], time="now") == {"series": {"count": 3, "lastObservedTime": "now"}}


def test_few_events_of_a_pod_are_remembered(ledger: Ledger) -> None:
    answers = [Answer(note=str(each), reasons=(), kind=str(each)) for each in range(100)]
    for number, answer in enumerate(answers):
        ledger.looked(NAME, answer, number, 1000.0 * number)

    again = ledger.looked(NAME, answers[0], 100, 1e6)

    assert again is not None
    assert again.repeats == 0


def test_event_of() -> None:
    telling = Telling(pod=NAME, uid="1", note="é" * MAX_NOTE, event="trainer.0", is_first=True)

    event = event_of(telling, instance="i" * 200, time="2026-11-20T00:00:00.000000Z")

    assert REASON == event["reason"]
    assert {"namespace": "team", "name": "trainer.0"} == event["metadata"]
    assert len(event["note"].encode()) == MAX_NOTE
    assert len(event["reportingInstance"]) == 128
    assert ("Pod", "team", "trainer", "1") == tuple(
        event["regarding"][each] for each in ("kind", "namespace", "name", "uid")
    )


def test_names_of_events_fit_the_api() -> None:
    made = Ledger(SETTINGS)
    long = view(document() | {"metadata": {"namespace": "a", "name": "n" * 253, "uid": "1"}}, Pod)
    made.replace(("a", "n" * 253), long, 0.0)

    told = made.looked(("a", "n" * 253), TAKEN, 1, 2.0)

    assert told is not None
    assert len(told.event) == 253
