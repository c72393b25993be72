"""The drivers of a claim: from published devices, and from names in expressions."""

import msgspec
import pytest

from kube.api.meta import convert
from kube.api.resource import DeviceClaim
from kube.cel.comparisons import compared_drivers
from kube.cel.library import Environment
from kube.cel.scope import BudgetSpent, Meter, evaluating, metered
from rules.context.claim_drivers import ClaimDrivers, drivers_of_claim, drivers_of_class
from rules.context.context import Context
from rules.model.requests import MAX_CHARACTERS
from testing.documents import EXAMPLE, NVIDIA, cel, device, exactly, resource_slice
from testing.rule_contexts import GPUS, context, named_class

NICS = {"name": "nics", "generation": 1, "resourceSliceCount": 1}
KNOWN = context(
    GPUS,
    resource_slice(device("nic-0"), name="nics", driver=NVIDIA, pool=NICS),
    classes={
        "all": named_class("all"),
        "example": named_class("example", f"device.driver == '{EXAMPLE}'"),
        "either": named_class(
            "either", f"device.driver == '{EXAMPLE}' || device.driver == '{NVIDIA}'"
        ),
        "later": named_class("later", "device.driver == 'later.example.com'"),
        "broken": named_class("broken", "device.driver =="),
        "none": named_class(
            "none", "device.attributes['nobody.example.com'].?x.orValue('') == 'y'"
        ),
    },
)


@pytest.mark.parametrize(
    ("expression", "drivers"),
    [
        ('device.driver == "a.example.com"', {"a.example.com"}),
        ("'a.example.com' == device.driver", {"a.example.com"}),
        ("device.driver in ['a', 'b']", {"a", "b"}),
        ("device.driver == 'a' || device.driver == 'b'", {"a", "b"}),
        ("device.driver != 'a'", set()),
        ("device.driver.startsWith('a')", set()),
        ("device.attributes['d'].x == 'a'", set()),
        ("true", set()),
    ],
)
def test_the_drivers_that_an_expression_names(expression: str, drivers: set[str]) -> None:
    assert compared_drivers(expression, Environment.STORED) == drivers


@pytest.mark.parametrize(
    ("name", "drivers"),
    [
        ("all", ClaimDrivers(published=frozenset({EXAMPLE, NVIDIA}))),
        ("example", ClaimDrivers(published=frozenset({EXAMPLE}), named=frozenset({EXAMPLE}))),
        ("later", ClaimDrivers(named=frozenset({"later.example.com"}))),
        ("broken", ClaimDrivers(unknown=("broken",))),
        ("none", ClaimDrivers(unknown=("none",))),
    ],
)
def test_the_drivers_of_a_class(name: str, drivers: ClaimDrivers) -> None:
    assert drivers_of_class(KNOWN.classes[name], KNOWN) == drivers


def claim(device_class: str, *selectors: str) -> DeviceClaim:
    request = exactly(deviceClassName=device_class, selectors=[cel(text) for text in selectors])
    return convert({"requests": [request]}, DeviceClaim)


SHARED = msgspec.structs.replace(KNOWN, owned_drivers=frozenset({NVIDIA}))
"""The same, where the bridge owns one of the two drivers."""


@pytest.mark.parametrize("device_class", ["all", "either"])
@pytest.mark.parametrize("driver", [NVIDIA, EXAMPLE])
def test_selectors_narrow_a_class_that_reaches_drivers_of_two_owners(
    driver: str, device_class: str
) -> None:
    narrowed = drivers_of_claim(claim(device_class, f"device.driver == '{driver}'"), SHARED)

    assert narrowed == ClaimDrivers(published=frozenset({driver}))


def test_selectors_that_do_not_narrow_are_evaluated_until_that_is_certain() -> None:
    assert drivers_of_claim(claim("all", "1 == 1"), SHARED).published == {NVIDIA, EXAMPLE}


@pytest.mark.parametrize(
    ("device_class", "known", "evaluated"),
    [("all", KNOWN, False), ("example", SHARED, False), ("all", SHARED, True)],
)
def test_selectors_of_users_are_evaluated_where_they_decide_alone(
    device_class: str, known: Context, evaluated: bool
) -> None:
    drivers_of_class(known.classes[device_class], known)
    selector = f"device.driver == '{NVIDIA}' && '{device_class} {evaluated}' != ''"

    with metered() as meter:
        drivers_of_claim(claim(device_class, selector), known)

    # A chain of the class, which is cached, and one of class and claim.
    assert (meter.steps > 0) is evaluated


def test_selectors_that_match_nothing_leave_the_drivers_of_the_class() -> None:
    selector = "device.attributes['nobody.example.com'].?x.orValue('') == 'y'"

    assert drivers_of_claim(claim("all", selector), SHARED).all == {EXAMPLE, NVIDIA}


def test_costly_selectors_are_not_evaluated() -> None:
    costly = f"device.driver == '{NVIDIA}' && '{'x' * MAX_CHARACTERS}' != ''"

    assert drivers_of_claim(claim("all", costly), SHARED).all == {EXAMPLE, NVIDIA}


def test_every_alternative_counts_and_an_unknown_class_is_named() -> None:
    request = {
        "name": "gpu",
        "firstAvailable": [
            {"name": "first", "deviceClassName": "example"},
            {"name": "second", "deviceClassName": "later"},
            {"name": "third", "deviceClassName": "missing"},
        ],
    }
    drivers = drivers_of_claim(convert({"requests": [request]}, DeviceClaim), KNOWN)

    assert drivers.all == {EXAMPLE, "later.example.com"}
    assert drivers.unknown == ("gpu/third",)


def test_an_expression_is_looked_at_once_however_many_requests_and_claims_have_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pod of 4 KB may have 64 claims of 256 alternatives."""
    looked_at: list[str] = []

    def count(expression: str, environment: Environment) -> frozenset[str]:
        looked_at.append(expression)
        return compared_drivers(expression, environment)

    monkeypatch.setattr("rules.context.claim_drivers.compared_drivers", count)
    own = "device.driver == 'own.example.com' && 'once' != ''"
    of_class = f"device.driver == '{EXAMPLE}' && 'once' != ''"
    known = context(classes={"once": named_class("once", of_class), "none": named_class("none")})
    requests = [
        exactly(f"r{number}", deviceClassName=name, selectors=[cel(own)])
        for number in range(16)
        for name in ("once", "none")
    ]
    claim = convert({"requests": requests}, DeviceClaim)

    for _ in range(3):
        drivers_of_claim(claim, known)

    assert looked_at == [of_class, own]


def test_expressions_of_a_claim_are_looked_at_while_there_is_time() -> None:
    own = [cel(f"device.driver == 'late.example.com' && 'n{n}' != ''") for n in range(2)]
    requests = [exactly(deviceClassName="none", selectors=own)]
    known = context(classes={"none": named_class("none")})
    claim = convert({"requests": requests}, DeviceClaim)
    meter = Meter(is_over=lambda: True)

    with evaluating(meter=meter), pytest.raises(BudgetSpent):
        drivers_of_claim(claim, known)
