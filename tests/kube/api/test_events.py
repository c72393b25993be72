"""Events within the API's limits, under names that derive from their content."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final

from msgspec.structs import replace

from kube.api.events import Event, ObjectReference, event_document, series_patch
from kube.api.meta import ObjectMeta
from testing.documents import api_object

NOW: Final = datetime(2026, 11, 20, 8, 30, tzinfo=UTC)
POD: Final = ObjectReference(api_version="v1", kind="Pod", namespace="team", name="a", uid="1")
POLICY: Final = ObjectReference(api_version="b/v1", kind="Policy", name="modes", uid="2")
EVENT: Final = Event(regarding=POD, reason="Missing", action="Observe", note="No device.")


def document(event: Event = EVENT, **fields: Any) -> Any:
    return event_document(
        replace(event, **fields), controller="drawbridge.test", instance="host_1", now=NOW
    )


def test_an_event_is_an_object_of_the_api() -> None:
    assert api_object("Event", EVENT.name, "team", eventTime="2026-11-20T08:30:00.000000Z", type="Warning", reason="Missing", action="Observe", note="No device.", reportingController="drawbridge.test", reportingInstance="host_1", regarding={
            "apiVersion": "v1", "kind": "Pod", "namespace": "team", "name": "a", "uid": "1"
        }) == document()  # fmt: skip


def test_an_event_about_a_cluster_scoped_object_is_in_the_default_namespace() -> None:
    document_ = document(regarding=POLICY)

    assert "default" == document_["metadata"]["namespace"]
    assert "namespace" not in document_["regarding"]


def test_a_related_object_is_named() -> None:
    assert {"apiVersion": "b/v1", "kind": "Policy", "name": "modes", "uid": "2"} == document(
        related=POLICY
    )["related"]


def test_a_note_is_cut_at_a_character() -> None:
    assert "x" + "é" * 511 == document(note="x" + "é" * 1024)["note"]


def test_a_name_and_an_instance_are_cut() -> None:
    event_document_ = event_document(
        replace(EVENT, regarding=replace(POD, name="n" * 253)),
        controller="drawbridge.test",
        instance="i" * 200,
        now=NOW,
    )

    assert 253 == len(event_document_["metadata"]["name"])
    assert 128 == len(event_document_["reportingInstance"])


def test_a_name_derives_from_object_and_identity() -> None:
    same = (replace(EVENT, action="Other"), replace(EVENT, series_count=2))
    others = (
        replace(EVENT, note="Two devices."),
        replace(EVENT, reason="Taken"),
        replace(EVENT, regarding=replace(POD, uid="3")),
    )

    assert {EVENT.name} == {event.name for event in same}
    assert EVENT.name not in {event.name for event in others}
    assert 1 == len({replace(event, identity="devices").name for event in others[:2]})


def test_objects_of_one_name_that_do_not_exist_have_events_of_their_own() -> None:
    absent = replace(EVENT, regarding=replace(POD, uid=""))
    other = replace(EVENT, regarding=replace(POD, uid="", kind="Service"))

    assert absent.name != other.name


def test_times_are_in_utc() -> None:
    there = NOW.astimezone(timezone(timedelta(hours=5)))

    assert series_patch(replace(EVENT, series_count=3), there) == {
        "series": {"count": 3, "lastObservedTime": "2026-11-20T08:30:00.000000Z"}
    }


def test_a_reference_names_an_object() -> None:
    metadata = ObjectMeta(name="a", namespace="team", uid="1")

    assert POD == ObjectReference.of("v1", "Pod", metadata)
    assert "Pod/team/a" == str(POD)
