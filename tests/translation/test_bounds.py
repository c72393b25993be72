"""The limits on claims derived from one pod; the work stops beyond them."""

from typing import Final

import msgspec
import pytest

from controllers.templates.actions import derive_claims
from findings.finding import Code
from testing.builders import HAMI, profiles
from testing.documents import Document
from translation.model.bounds import MAX_ALTERNATIVES, MAX_CLAIMS, MAX_SELECTORS, MAX_SPEC_BYTES
from translation.record.derive import Derivation, derive
from translation.record.record import decode_record

GIB: Final = 2**30


def names(number: int) -> str:
    return ",".join(f"GPU-{index:05}-{'a' * 20}" for index in range(number))


WIDE: Final = {"nvidia.com/use-gpuuuid": names(70), "nvidia.com/nouse-gpuuuid": names(70)}
"""Filters of 7 KB, which each alternative of each request repeats."""


def record(containers: int, *, sizes: int = 1, filters: dict[str, str] | None = None) -> str:
    """Return a record as a stranger would write it: each container asks for part of a GPU."""
    limits = [
        {"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": str(1 + index % 99)}
        for index in range(containers)
    ]
    facts: Document = {"sizes": [{"size": str((10 + index) * GIB)} for index in range(sizes)]}
    profile = {"vocabulary": "hami", "name": HAMI, "hash": profiles()[HAMI].content_hash}
    document = {
        "translationVersion": 1,
        "profiles": [{**profile, "facts": {"gpu": facts}}],
        "containers": [
            {"name": f"c{index}", "limits": amounts} for index, amounts in enumerate(limits)
        ],
        "annotations": filters or {},
    }
    return msgspec.json.encode(document).decode()


def derived(text: str) -> Derivation:
    return derive(decode_record(text), profiles())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param(record(MAX_CLAIMS + 1), f"at most {MAX_CLAIMS}", id="claims"),
        pytest.param(record(64, sizes=8), f"at most {MAX_ALTERNATIVES}", id="alternatives"),
        pytest.param(record(8, sizes=8, filters=WIDE), f"at most {MAX_SPEC_BYTES}", id="bytes"),
    ],
)
def test_a_pod_that_derives_too_much_is_refused_with_the_key(text: str, words: str) -> None:
    (error,) = [finding for finding in derived(text).findings if finding.is_error]

    assert error.code is Code.TOO_LARGE
    assert words in error.message
    assert str(error.path).endswith("limits[nvidia.com/gpu]")


def test_as_much_as_allowed_is_derived() -> None:
    derivation = derived(record(MAX_CLAIMS))

    assert len(derivation.claims) == MAX_CLAIMS
    assert not any(finding.is_error for finding in derivation.findings)
    assert sum(claim.size for claim in derivation.claims) <= MAX_SPEC_BYTES


def test_the_work_stops_where_it_is_too_much() -> None:
    few = derived(record(8, sizes=8, filters=WIDE))
    many = derived(record(64, sizes=8, filters=WIDE))

    assert len(few.claims) == len(many.claims) < 8
    assert derived(record(256, sizes=8, filters=WIDE)).claims == ()


def test_selectors_are_bounded_by_the_other_bounds() -> None:
    """Each of 256 alternatives has at most the four filters that a pod may name."""
    assert MAX_SELECTORS >= 4 * MAX_ALTERNATIVES


def test_the_controller_writes_nothing_for_such_a_pod() -> None:
    derivation = derive_claims(record(8, sizes=8, filters=WIDE), profiles())

    assert derivation.claims == ()
    assert derivation.problem is not None
    assert derivation.problem.code is Code.TOO_LARGE
