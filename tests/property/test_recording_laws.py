"""Recordings: changes fold to the state that they were made of, lines come back, and hostile lines end in a message."""

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from answers.recording.course import read_course
from answers.recording.delta import Delta, ObjectKey, change_of, diff, digest, fold
from answers.recording.lines import (
    Change,
    Entry,
    Gap,
    Mark,
    Moment,
    Torn,
    decode_entries,
    encode_entry,
)
from kube.errors import ObjectFileError

pytestmark = pytest.mark.property

values: Final = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2)
    ),
    max_leaves=4,
)
fields: Final = st.dictionaries(st.sampled_from(("metadata", "spec", "status")), values)
keys: Final = st.builds(
    ObjectKey,
    api_version=st.just("v1"),
    kind=st.sampled_from(("Pod", "Node", "ResourceClaim")),
    name=st.sampled_from("abc"),
    namespace=st.sampled_from(("", "team")),
)
states: Final = st.dictionaries(keys, fields, max_size=5)


def exact(state: Mapping[ObjectKey, Any]) -> dict[str, str]:
    """JSON tells 1 from true, and Python does not."""
    return {
        f"{key.kind}/{key.namespace}/{key.name}": json.dumps(state[key], sort_keys=True)
        for key in state
    }


@given(before=states, after=states)
def test_the_difference_of_two_states_folded_into_the_first_is_the_second(
    before: dict[ObjectKey, Any], after: dict[ObjectKey, Any]
) -> None:
    assert fold(diff(before, after), before) == after


@given(state=states)
def test_a_state_does_not_differ_from_itself(state: dict[ObjectKey, Any]) -> None:
    assert list(diff(state, state)) == []


@given(first=states, second=states, third=states)
def test_differences_one_after_the_other_are_the_difference(
    first: dict[ObjectKey, Any], second: dict[ObjectKey, Any], third: dict[ObjectKey, Any]
) -> None:
    steps = [*diff(first, second), *diff(second, third)]

    assert fold(steps, first) == fold(diff(first, third), first)


@given(key=keys, before=fields, after=fields)
def test_digests_are_as_good_as_the_fields(
    key: ObjectKey, before: dict[str, Any], after: dict[str, Any]
) -> None:
    """The recorder remembers digests alone."""

    def digests(values: dict[str, Any]) -> dict[str, bytes]:
        return {
            name: digest(msgspec.json.encode(value, order="sorted"))
            for name, value in values.items()
        }

    delta = change_of(key, digests(before), digests(after), after)

    assert (delta is None) == (exact({key: before}) == exact({key: after}))
    folded = fold([] if delta is None else [delta], {key: before})
    assert exact(folded) == exact({key: after})


seconds: Final = st.floats(0, 10**6).map(lambda value: round(value, 3))
deltas: Final = st.builds(
    Delta, object=keys, set=fields, unset=st.just(("status",)) | st.just(()), deleted=st.booleans()
)
entries: Final = st.one_of(
    st.builds(Change, at=seconds, delta=deltas),
    st.builds(Gap, at=seconds, since=st.just(0.0), resource=st.just("pods")),
    st.builds(Moment, at=seconds, mark=st.sampled_from((Mark.STATE, Mark.END))),
)
courses: Final = st.lists(entries, max_size=8).map(
    lambda several: sorted(several, key=lambda entry: entry.at)
)


@given(course=courses)
def test_what_is_written_is_read(course: list[Entry]) -> None:
    lines = [encode_entry(entry) for entry in course]

    read = list(decode_entries(lines, "day.json"))

    assert [encode_entry(entry) for entry in read] == lines


@given(course=courses, cut=st.integers(0, 2000))
def test_a_file_that_is_cut_off_is_whole_up_to_its_last_line(course: list[Entry], cut: int) -> None:
    text = b"".join(map(encode_entry, course))[:cut]
    whole = text.count(b"\n")
    read: list[Entry] = []
    is_torn = False
    try:
        for entry in decode_entries(text.splitlines(keepends=True), "day.json"):
            read += [entry]
    except Torn:
        is_torn = True

    assert len(read) == whole
    assert is_torn == (text != b"" and not text.endswith(b"\n"))


hostile: Final = st.one_of(
    st.binary(max_size=40),
    values.map(lambda value: json.dumps(value).encode()),
    st.fixed_dictionaries(
        {},
        optional={
            "at": values | seconds,
            "object": values | fields,
            "set": values | fields,
            "mark": values | st.sampled_from(("state", "gap", "end")),
            "since": values,
            "deleted": values,
        },
    ).map(lambda value: json.dumps(value).encode()),
    courses.map(lambda course: encode_entry(course[0])[:-1] if course else b""),
)


@given(lines=st.lists(hostile, max_size=6))
def test_whatever_a_file_holds_it_is_read_or_named_with_its_line(lines: list[bytes]) -> None:
    state = encode_entry(Moment(at=0.0, mark=Mark.STATE))
    text = [state, *(line.replace(b"\n", b" ") + b"\n" for line in lines)]
    message = "day.json:"
    try:
        read_course(decode_entries(text, "day.json"), "day.json")
    except ObjectFileError as fault:
        message = str(fault)
    assert message.startswith("day.json:")
