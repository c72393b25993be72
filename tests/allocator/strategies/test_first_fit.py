from typing import NamedTuple

import pytest

from allocator.strategies.first_fit import FIRST_FIT
from kube.api.resource import DeviceRequest
from testing.allocation.builders import alternative, claim, first_of, request
from testing.allocation.placing import Placed, held_results, placed, sharing, whole

NEVER = "false"


class Row(NamedTuple):
    name: str
    requests: tuple[DeviceRequest, ...]
    score: int


def ranked_device_request(rank: int, name: str = "req-0") -> DeviceRequest:
    """A request with the alternative of this rank as the first that fits."""
    impossible = [alternative(f"sub-{number}", NEVER) for number in range(rank)]
    return first_of(name, *impossible, alternative("last"))


ROWS = (
    Row("without alternatives nodes are equal", (request(),), 0),
    Row("the first alternative is worth all", (ranked_device_request(0),), 100),
    Row("the second is worth 7 of 8", (ranked_device_request(1),), 87),
    Row("the eighth is worth 1 of 8", (ranked_device_request(7),), 12),
    Row(
        "several requests are worth their mean",
        (ranked_device_request(0, "a"), ranked_device_request(7, "b")),
        56,
    ),
    Row(
        "only requests with alternatives count", (ranked_device_request(0, "a"), request("b")), 100
    ),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_score(row: Row) -> None:
    assert row.score == placed(FIRST_FIT, whole(2), [claim(*row.requests)]).score


def test_alternatives_of_several_claims_count_together() -> None:
    claims = [claim(ranked_device_request(0), name="a"), claim(ranked_device_request(7), name="b")]

    assert placed(FIRST_FIT, whole(2), claims).score == 56


def test_devices_are_in_upstreams_order_whatever_their_load() -> None:
    assert Placed("gpu-1", 0) == placed(
        FIRST_FIT, whole(3), [claim(request())], held_results("gpu-0")
    )


def test_a_share_is_on_upstreams_device() -> None:
    assert Placed("gpu-0", 0) == placed(FIRST_FIT, sharing(2), [claim(request())])
