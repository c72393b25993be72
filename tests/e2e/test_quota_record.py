"""The cause of more being stored than a quota allows."""

from typing import Final

import pytest

from e2e.quota_record import BEFORE, Counting, Status, excesses

GPUS: Final = "requests.nvidia.com/gpu"


def pod(version: int, name: str, amount: int = 1) -> Counting:
    return Counting(version=version, namespace="team", uid=name, amounts={GPUS: amount})


def quota(version: int, used: int, *, by_admission: bool = True) -> Status:
    admitted = frozenset({GPUS} if by_admission else ())
    return Status(
        version=version, namespace="team", hard={GPUS: 2}, used={GPUS: used}, admitted=admitted
    )


FULL: Final[list[Counting | Status]] = [quota(BEFORE, 2), pod(BEFORE, "a"), pod(BEFORE, "b")]


@pytest.mark.parametrize(
    "versions",
    [
        [],
        # Counted, then refused by another plugin: the controller takes it back.
        [pod(1, "a", 0), quota(2, 1, by_admission=False), quota(3, 2), quota(4, 1, by_admission=False)],
        # One goes, another comes.
        [pod(1, "a", 0), quota(2, 1, by_admission=False), quota(3, 2), pod(4, "c"), pod(5, "c")],
    ],
)  # fmt: skip
def test_what_is_within_the_limit_is_no_excess(versions: list[Counting | Status]) -> None:
    found = excesses([*FULL, *versions])

    assert ([], []) == (found.uncounted, found.recounted)


def test_a_pod_that_admission_did_not_count_is_reported() -> None:
    found = excesses([*FULL, pod(1, "c"), quota(2, 3, by_admission=False)])

    assert [f"team: 3 of 2 {GPUS} at {version}" for version in (1, 2)] == found.uncounted
    assert [] == found.recounted


IN_TIME: Final[list[Counting | Status]] = [
    quota(3, 2),
    pod(4, "c"),
    quota(5, 1, by_admission=False),
]
LATE: Final[list[Counting | Status]] = [quota(3, 2), quota(4, 1, by_admission=False), pod(5, "c")]


@pytest.mark.parametrize("created", [IN_TIME, LATE])
def test_what_the_controller_takes_back_is_told_apart(created: list[Counting | Status]) -> None:
    """It has not seen c yet, and writes that one of two is used."""
    found = excesses(
        [*FULL, pod(1, "a", 0), quota(2, 1, by_admission=False), *created, quota(6, 2), pod(7, "d")]
    )

    assert [] == found.uncounted
    assert [f"team: 3 of 2 {GPUS} at 7"] == found.recounted


def test_a_way_around_is_told_though_the_controller_took_something_back() -> None:
    found = excesses(
        [*FULL, pod(1, "a", 0), quota(2, 0, by_admission=False), quota(3, 1), pod(4, "c"), pod(5, "d")]
    )  # fmt: skip

    assert [f"team: 3 of 2 {GPUS} at 5"] == found.uncounted
