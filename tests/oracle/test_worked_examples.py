"""Small scenarios with a known verdict, for us, and for the Go program as a check of its questions.

One node, one pool of one slice, a class without selectors, the gates of 1.37.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from testing.oracle.draft import Json, chosen_documents, claim
from testing.oracle.go import Oracle
from testing.oracle.ours import verdicts
from testing.oracle.verdicts import DOES_NOT_FIT, FATAL, FIT, NODE, Verdict, upstream

M4: Json = {"m": {"value": "4"}}


def device(name: str = "d0", **fields: Any) -> Json:
    """A device."""
    return {"name": name} | fields


def shared(policy: Json | None = None) -> Json:
    """A device with 4 of m, for several claims at once."""
    amount = {"value": "4"} | ({"requestPolicy": policy} if policy else {})
    return device(allowMultipleAllocations=True, capacity={"m": amount})


def exactly(count: int = 1, **fields: Any) -> Json:
    """A request of mode ExactCount."""
    document = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": count}
    return {"exactly": document | fields}


def amount(value: str, key: str = "m") -> Json:
    """A request for so much of a device."""
    return exactly(capacity={"requests": {key: value}})


def asking_document(*requests: Json, **fields: Any) -> Json:
    """A claim."""
    named = [{"name": f"r{index}"} | request for index, request in enumerate(requests)]
    return claim("wanted", {"requests": named} | fields)


def deriving(expression: str) -> Json:
    """A request that computes an attribute."""
    return exactly(derivedAttributes=[{"name": "x.io/y", "expression": expression}])


BROKEN = 'device.attributes["d.example.com"].missing == 1'
ALL: Json = {"exactly": {"deviceClassName": "any", "allocationMode": "All"}}
ADMIN = exactly(adminAccess=True)


STABLE = {"DRAConsumableCapacity": False, "DRADeviceBindingConditions": False}


class Case(NamedTuple):
    name: str
    devices: list[Json]
    claims: list[Json]
    want: str
    expected_devices: tuple[str, ...] = ()
    features: Mapping[str, bool] | None = None


CASES = (
    Case(
        "admin, then normal",
        [device()],
        [asking_document(ADMIN), asking_document(exactly())],
        DOES_NOT_FIT,
    ),
    Case(
        "normal, then admin",
        [device()],
        [asking_document(exactly()), asking_document(ADMIN)],
        FIT,
        ("d0", "d0"),
    ),
    Case(
        "two admin requests of one claim", [device()], [asking_document(ADMIN, ADMIN)], DOES_NOT_FIT
    ),
    Case(
        "normal, then admin, of one claim",
        [device()],
        [asking_document(exactly(), ADMIN)],
        DOES_NOT_FIT,
    ),
    Case(
        "a list attribute to match, one device, the gate off",
        [device(attributes={"x": {"ints": [1, 2]}})],
        [asking_document(exactly(), constraints=[{"matchAttribute": "d.example.com/x"}])],
        FIT,
        ("d0",),
    ),
    Case(
        "a capacity with the driver's domain",
        [shared()],
        [asking_document(amount("1", "d.example.com/m"))],
        DOES_NOT_FIT,
    ),
    Case(
        "two shares of one device",
        [shared()],
        [asking_document(amount("1"), amount("3"))],
        FIT,
        ("d0 1", "d0 3"),
    ),
    Case(
        "count 2 of one shared device",
        [shared()],
        [asking_document(exactly(2, capacity={"requests": {"m": "1"}}))],
        DOES_NOT_FIT,
    ),
    Case(
        "silence takes the whole device",
        [shared()],
        [asking_document(exactly()), asking_document(exactly())],
        DOES_NOT_FIT,
    ),
    Case("a share of nothing", [shared()], [asking_document(amount("0"))], FIT, ("d0 0",)),
    Case(
        "too much of a dedicated device",
        [device(capacity=M4)],
        [asking_document(amount("5"))],
        DOES_NOT_FIT,
    ),
    Case(
        "some of a dedicated device",
        [device(capacity=M4)],
        [asking_document(amount("3"))],
        FIT,
        ("d0",),
    ),
    Case(
        "a fraction is raised to a step",
        [shared({"default": "1", "validRange": {"min": "1", "step": "1"}})],
        [asking_document(amount("1500m"))],
        FIT,
        ("d0 2",),
    ),
    Case(
        "a fraction without steps stays",
        [shared({"default": "1", "validRange": {"min": "1"}})],
        [asking_document(amount("1500m"))],
        FIT,
        ("d0 1500m",),
    ),
    Case("less than nothing", [shared()], [asking_document(amount("-1"))], FATAL),
    Case(
        "an alternative of a missing class",
        [device()],
        [
            asking_document(
                {
                    "firstAvailable": [
                        {"name": "s0"} | exactly()["exactly"],
                        {"name": "s1"} | exactly(deviceClassName="missing")["exactly"],
                    ]
                }
            )
        ],
        FATAL,
    ),
    Case(
        "all of 33 devices",
        [device(f"d{index}") for index in range(33)],
        [asking_document(ALL)],
        FATAL,
    ),
    Case(
        "a selector that fails on the second device",
        [device(attributes={"x": {"bool": True}}), device("d1")],
        [
            asking_document(
                exactly(selectors=chosen_documents('device.attributes["d.example.com"].x'))
            )
        ],
        FIT,
        ("d0",),
    ),
    Case(
        "a selector that fails on the first device",
        [device(), device("d1", attributes={"x": {"bool": True}})],
        [
            asking_document(
                exactly(selectors=chosen_documents('device.attributes["d.example.com"].x'))
            )
        ],
        FATAL,
    ),
    Case("a claim without requests", [device()], [asking_document()], FIT),
    Case("one name twice", [device(), device()], [asking_document(exactly())], NODE),
    Case(
        "capacity, the gate off",
        [device(capacity=M4)],
        [asking_document(amount("1"))],
        FATAL,
        features={"DRAConsumableCapacity": False},
    ),
    Case(
        "what is left of a device counts before a derived attribute that fails",
        [shared()],
        [
            asking_document(
                deriving("1"), deriving(BROKEN), constraints=[{"matchAttribute": "x.io/y"}]
            )
        ],
        DOES_NOT_FIT,
        features={"DRADerivedAttributes": True},
    ),
    Case(
        "a derived attribute that fails, with enough left of the device",
        [shared({"default": "1"})],
        [
            asking_document(
                deriving("1"), deriving(BROKEN), constraints=[{"matchAttribute": "x.io/y"}]
            )
        ],
        FATAL,
        features={"DRADerivedAttributes": True},
    ),
)


@pytest.mark.oracle
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_upstream(oracle: Oracle, case: Case) -> None:
    (answer,) = oracle.ask([{"allocate": scenario(case)}])

    check(case, upstream(answer)["n1"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_ours(case: Case) -> None:
    check(case, verdicts(scenario(case))["n1"])


def check(case: Case, verdict: Verdict) -> None:
    assert case.want == verdict.end
    assert case.expected_devices == tuple(
        " ".join(
            (
                result["device"],
                *(str(consumed) for consumed in result.get("consumedCapacity", {}).values()),
            )
        )
        for claim_ in verdict.claims
        for result in claim_["results"]
    )


def scenario(case: Case) -> Json:
    """The case as a question."""
    published_document = {
        "metadata": {"name": "slice"},
        "spec": {
            "driver": "d.example.com",
            "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
            "nodeName": "n1",
            "devices": case.devices,
        },
    }
    return {
        "features": case.features or {},
        "slices": [published_document],
        "classes": [{"metadata": {"name": "any"}, "spec": {}}],
        "allocated": [],
        "claims": case.claims,
        "nodes": [{"metadata": {"name": "n1"}}],
    }


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("more", "error", "steps"),
    [
        ({}, None, 16),
        ({"implementation": "experimental"}, None, 16),
        ({"implementation": "stable", "features": STABLE}, None, 65),
        ({"maxSteps": 10}, "steps", 11),
    ],
    ids=("upstream's choice", "experimental", "stable", "cut off"),
)
def test_steps(oracle: Oracle, more: Json, error: str | None, steps: int) -> None:
    case = Case(
        "", [device(f"d{index}") for index in range(4)], [asking_document(exactly(5))], DOES_NOT_FIT
    )

    (answer,) = oracle.ask([{"allocate": scenario(case) | more}])

    assert (error, steps) == (answer["nodes"]["n1"]["error"], answer["nodes"]["n1"]["steps"])
