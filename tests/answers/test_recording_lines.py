"""Lines of a recording: the rejected ones, and the words about them."""

import pytest

from answers.recording.lines import (
    MAX_SECONDS,
    Gap,
    Header,
    Mark,
    Moment,
    Torn,
    decode_entries,
    decode_header,
    encode_entry,
    encode_header,
)
from kube.errors import ObjectFileError

STATE = b'{"at":0,"mark":"state"}\n'


def test_a_header_comes_back() -> None:
    header = Header(started_at="2026-11-20T08:00:00Z", server="https://a", unreadable=("pods",))

    line = encode_header(header)

    assert line.startswith(b'{"apiVersion":"cli.drawbridge.internal/v1","kind":"Recording",')
    assert decode_header(line, "day.json") == header


@pytest.mark.parametrize(
    ("want", "line"),
    [
        ("not the first line of a recording: ", b"nonsense\n"),
        ("not the first line of a recording: ", b'{"kind":1}\n'),
        ('not a recording: "cli.drawbridge.internal/v9 Recording" instead of ', b'{"apiVersion":"cli.drawbridge.internal/v9","kind":"Recording"}\n'),
        ('not a recording: "v1 Pod" instead of cli.drawbridge.internal/v1 Recording', b'{"apiVersion":"v1","kind":"Pod"}\n'),
    ],
)  # fmt: skip
def test_another_file_is_named(want: str, line: bytes) -> None:
    with pytest.raises(ObjectFileError) as fault:
        decode_header(line, "day.json")

    assert str(fault.value).startswith(f"day.json:1: {want}")


@pytest.mark.parametrize(
    ("want", "line"),
    [
        ("not a line of a recording: ", b"nonsense\n"),
        ("not a line of a recording: ", b'{"at":"soon","mark":"end"}\n'),
        ("not a line of a recording: ", b'{"at":1,"mark":"lunch"}\n'),
        ("not a line of a recording: ", b'{"at":1,"mark":"\xff"}\n'),
        ("not a line of a recording: nested too deeply", b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"\n"),
        ("neither an object nor a mark", b'{"at":1}\n'),
        ("at: -1 is no second from 0 to 1000000000", b'{"at":-1,"mark":"end"}\n'),
        ("at: 1e+10 is no second", b'{"at":10000000000,"mark":"end"}\n'),
        ("since: -5 is no second", b'{"at":1,"mark":"gap","since":-5}\n'),
        ("the object lacks apiVersion, kind or name", b'{"at":1,"object":{"apiVersion":"v1","kind":"Pod","name":""}}\n'),
        ("the object has a name of more than 253 characters", b'{"at":1,"object":{"apiVersion":"v1","kind":"Pod","name":"' + b"a" * 254 + b'"}}\n'),
    ],
)  # fmt: skip
def test_a_line_that_no_recorder_writes_is_named(want: str, line: bytes) -> None:
    with pytest.raises(ObjectFileError) as fault:
        list(decode_entries([STATE, line], "day.json"))

    assert not isinstance(fault.value, Torn)
    assert str(fault.value).startswith(f"day.json:3: {want}")


def test_time_does_not_go_back() -> None:
    lines = [encode_entry(Moment(at=at, mark=Mark.END)) for at in (2.0, 1.0)]

    with pytest.raises(ObjectFileError, match=r"day.json:3: second 1 stands behind second 2"):
        list(decode_entries(lines, "day.json"))


def test_a_last_line_without_an_end_is_torn_even_if_it_could_be_read() -> None:
    lines = decode_entries([STATE, b'{"at":1,"mark":"end"}'], "day.json")

    assert next(lines) == Moment(at=0.0, mark=Mark.STATE)
    with pytest.raises(Torn, match=r"day.json:3: the file ends within a line"):
        next(lines)


def test_an_infinite_second_is_none() -> None:
    with pytest.raises(ObjectFileError, match=r"^day\.json:2: "):
        list(decode_entries([b'{"at":1e999,"mark":"end"}\n'], "day.json"))
    assert MAX_SECONDS < float("inf")


def test_a_gap_ends_not_before_it_begins() -> None:
    (gap,) = decode_entries([b'{"at":1,"mark":"gap","since":7,"resource":"pods"}\n'], "day.json")

    assert gap == Gap(at=1.0, since=1.0, resource="pods")
