"""The configuration that an allocation carries. Expected: `class a,b:x`, source, requests, value."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import pytest

from allocator.features.opaque_config import merge_configuration
from allocator.model.feature_gates import Features
from allocator.model.requests import resolve_requests
from kube.api.resource import DeviceClaimConfiguration, DeviceRequest
from testing.allocation.builders import (
    alternative,
    claim,
    classes,
    configured_configuration,
    device_class,
    first_of,
    opaque,
    request,
)

KNOWN: Final = classes(
    device_class("plain"),
    device_class("gpu", config=[opaque(v="g1"), opaque("other.example.com", v="g2")]),
    device_class("nic", config=[opaque(v="n")]),
)


def plain(name: str) -> DeviceRequest:
    return request(name, device_class_name="plain")


TWO: Final = (plain("a"), plain("b"))
EITHER: Final = (
    plain("a"),
    first_of(
        "b",
        alternative("gpu", device_class_name="gpu"),
        alternative("nic", device_class_name="nic"),
    ),
)


class Case(NamedTuple):
    name: str
    want: str
    requests: Sequence[DeviceRequest]
    config: Sequence[DeviceClaimConfiguration] = ()
    alternatives: Sequence[int] = (0, 0)


CASES: Final = (
    Case("nobody configures anything", "", TWO),
    Case("a claim configures all requests", "claim *:1", TWO, [configured_configuration(v="1")]),
    Case(
        "a claim configures one request", "claim a:1", TWO, [configured_configuration("a", v="1")]
    ),
    Case(
        "a claim that names each request means all",
        "claim *:1",
        TWO,
        [configured_configuration("b", "a", v="1")],
    ),
    Case(
        "a claim's entries keep their order, also of one request",
        "claim b:1 claim a:2 claim *:3 claim b:4",
        TWO,
        [
            configured_configuration("b", v="1"),
            configured_configuration("a", v="2"),
            configured_configuration(v="3"),
            configured_configuration("b", v="4"),
        ],
    ),
    Case("what names no request is dropped", "", TWO, [configured_configuration("c", v="1")]),
    Case(
        "an entry keeps the names that are not of this claim",
        "claim a,c:1",
        TWO,
        [configured_configuration("a", "c", v="1")],
    ),
    Case(
        "a class comes before the claim, whoever is configured",
        "class b:n claim a:1",
        (plain("a"), request("b", device_class_name="nic")),
        [configured_configuration("a", v="1")],
    ),
    Case(
        "a class for each request means all; of all drivers",
        "class *:g1 class *:g2",
        (request("a"), request("b")),
    ),
    Case(
        "a class comes once, where it is first used, for all that use it",
        "class a,c:g1 class a,c:g2 class b:n",
        (request("a"), request("b", device_class_name="nic"), request("c")),
        alternatives=(0, 0, 0),
    ),
    Case("the class of the chosen alternative", "class b/nic:n", EITHER, alternatives=(0, 1)),
    Case(
        "an alternative that was not chosen is not configured",
        "class b/nic:n",
        EITHER,
        [configured_configuration("b/gpu", v="1")],
        (0, 1),
    ),
    Case(
        "the chosen alternative is",
        "class b/nic:n claim b/nic:1",
        EITHER,
        [configured_configuration("b/nic", v="1")],
        (0, 1),
    ),
    Case(
        "so is its parent",
        "class b/nic:n claim b:1",
        EITHER,
        [configured_configuration("b", v="1")],
        (0, 1),
    ),
    Case(
        "names of alternatives that were not chosen stay beside one that was",
        "class b/nic:n claim b/gpu,b/nic:1",
        EITHER,
        [configured_configuration("b/gpu", "b/nic", v="1")],
        (0, 1),
    ),
    Case(
        "a request and the chosen alternative of the other are all",
        "class b/nic:n claim *:1",
        EITHER,
        [configured_configuration("a", "b/nic", v="1")],
        (0, 1),
    ),
    Case(
        "a request and another alternative are not all",
        "class b/nic:n claim a,b/gpu:1",
        EITHER,
        [configured_configuration("a", "b/gpu", v="1")],
        (0, 1),
    ),
    Case("a claim without requests", "claim *:1", (), [configured_configuration(v="1")], ()),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_merge_configuration(case: Case) -> None:
    pending = resolve_requests((claim(*case.requests, config=case.config),), KNOWN, Features())

    entries = merge_configuration(pending, 0, case.alternatives)

    assert case.want == " ".join(
        f"{entry.source.removeprefix('From').lower()} {','.join(entry.requests or ()) or '*'}:"
        f"{entry.opaque.parameters['v'] if entry.opaque else ''}"
        for entry in entries
    )
