"""Hostile calls: the same again from the same seed, and of every kind."""

from itertools import islice
from random import Random

import msgspec
import pytest

from testing.builders import admit, gpus, pod
from testing.fuzz.calls import LARGE, LARGE_OBJECTS, MEBIBYTE, Call, Calls
from testing.fuzz.reviews import Origin


def calls(seed: int, count: int) -> list[Call]:
    legacy = pod(gpus(1, mem=5), gpus(2, name="b"))
    after, _ = admit(legacy)
    return list(islice(Calls(Random(seed), [Origin(legacy, after)]), count))


def test_a_seed_gives_the_same_calls_again() -> None:
    assert calls(7, 300) == calls(7, 300)
    assert calls(7, 300) != calls(8, 300)


def test_every_kind_comes() -> None:
    kinds = {call.kind.partition(":")[0] for call in calls(1, 3000)}

    assert {
        "honest",
        "other devices",
        "other tree",
        "forged",
        "bent",
        "workload",
        "object",
        "large",
    } <= kinds
    assert {"another type", "another length", "compressed", "chunked", "broken off"} <= kinds


def test_at_least_a_tenth_is_about_objects_of_dra() -> None:
    calls_ = calls(1, 3000)

    assert len([call for call in calls_ if call.kind == "object"]) > len(calls_) // 10


@pytest.mark.parametrize("shape", [*LARGE, *LARGE_OBJECTS])
def test_a_large_body_is_as_large_as_was_asked_for(shape: str) -> None:
    body = msgspec.json.encode({**LARGE, **LARGE_OBJECTS}[shape](MEBIBYTE, Random(1)))

    assert 0.4 * MEBIBYTE < len(body) < 1.6 * MEBIBYTE
