"""Claims in words: every form of condition that has words, and one that has none."""

from typing import Any

import pytest

from cli.output.claim_text import requests, selector_text
from kube.quantity import Quantity
from translation.compiling.claims import Claim
from translation.compiling.conditions import Condition, Relation


def condition(name: str, relation: Relation, *values: Any, negated: bool = False) -> Condition:
    return Condition(domain="a.b", name=name, relation=relation, values=values, negated=negated)


def claim(devices: dict[str, Any], *conditions: Condition) -> Claim:
    return Claim(
        label="gpu",
        template="gpu",
        spec={"spec": {"devices": devices}},
        digest="",
        size=0,
        uses=(),
        conditions={condition.expression: (condition,) for condition in conditions},
    )


@pytest.mark.parametrize(
    ("want", "conditions"),
    [
        ("profile is 1g.5gb", [condition("profile", Relation.EQUAL, "1g.5gb")]),
        ("rdma is true", [condition("rdma", Relation.EQUAL, True)]),
        ("numaNode is 1", [condition("numaNode", Relation.EQUAL, 1)]),
        ("model contains a100", [condition("model", Relation.CONTAINS, "a100")]),
        ('model contains a\\"b', [condition("model", Relation.CONTAINS, 'a"b')]),
        (
            "model does not contain a or b",
            [condition("model", Relation.CONTAINS, "a", "b", negated=True)],
        ),
        ("uuid is GPU-1 or GPU-2", [condition("uuid", Relation.ONE_OF, "GPU-1", "GPU-2")]),
        ("uuid is not GPU-1", [condition("uuid", Relation.ONE_OF, "GPU-1", negated=True)]),
        ("it has no partition", [condition("partition", Relation.PRESENT, negated=True)]),
        (
            "short is a or full is b/a",
            [
                condition("short", Relation.EQUAL, "a"),
                condition("full", Relation.EQUAL, "b/a"),
            ],
        ),
        ("memory is 8Gi", [condition("memory", Relation.SAME_AMOUNT, Quantity("8Gi"))]),
        ("memory is at least 8Gi", [condition("memory", Relation.AT_LEAST, Quantity("8Gi"))]),
        (
            '"partition" in device.attributes["a.b"]',
            [condition("partition", Relation.PRESENT)],
        ),
    ],
)
def test_a_selector_is_told_by_its_conditions(want: str, conditions: list[Condition]) -> None:
    assert want == selector_text(conditions)


def _alternative(selected: Condition, memory: str) -> dict[str, Any]:
    return {
        "deviceClassName": "c",
        "selectors": [{"cel": {"expression": selected.expression}}],
        "capacity": {"requests": {"memory": memory}},
    }


def test_an_amount_is_told_beside_the_size_that_its_device_has() -> None:
    sizes = [condition("memory", Relation.SAME_AMOUNT, Quantity(size)) for size in ("40Gi", "80Gi")]
    ways = [_alternative(sizes[0], "20Gi"), _alternative(sizes[1], "40Gi")]

    (request,) = requests(claim({"requests": [{"name": "a", "firstAvailable": ways}]}, *sizes))

    wanted = "memory 20Gi of a 40Gi device, or memory 40Gi of an 80Gi device"
    assert ("a", f"1 device of class c; the first that fits: {wanted}") == request


def test_an_amount_is_told_behind_another_condition_of_its_alternative() -> None:
    profiles = [condition("profile", Relation.EQUAL, profile) for profile in ("1g.5gb", "2g.10gb")]
    ways = [_alternative(profiles[0], "4Gi"), _alternative(profiles[1], "9Gi")]

    (request,) = requests(claim({"requests": [{"name": "a", "firstAvailable": ways}]}, *profiles))

    wanted = "profile is 1g.5gb with memory 4Gi, or profile is 2g.10gb with memory 9Gi"
    assert ("a", f"1 device of class c; the first that fits: {wanted}") == request


def test_constraints_and_configuration_stand_behind_their_request() -> None:
    exact_request = {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 2}
    devices: dict[str, Any] = {
        "requests": [
            {"name": "a", "exactly": exact_request},
            {"name": "b", "exactly": exact_request},
        ],
        "constraints": [
            {"requests": ["a"], "distinctAttribute": "d/uuid"},
            {"matchAttribute": "resource.kubernetes.io/numaNode"},
        ],
        "config": [{"requests": ["b"], "opaque": {"driver": "d", "parameters": {"kind": "K"}}}],
    }

    phrases_by_request = dict(requests(claim(devices)))

    assert phrases_by_request == {
        "a": "2 devices of class c; with different uuid; with the same numaNode",
        "b": "2 devices of class c; with the same numaNode; K {}",
    }


def test_all_devices_of_a_node_are_no_number() -> None:
    exact_request = {"deviceClassName": "c", "allocationMode": "All"}

    (request,) = requests(claim({"requests": [{"name": "a", "exactly": exact_request}]}))

    assert request == ("a", "all devices of a node of class c")


def test_constraints_name_the_requests_beside() -> None:
    exact_request = {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1}
    ways = [exact_request | {"name": "aligned"}, exact_request | {"name": "any"}]
    devices: dict[str, Any] = {
        "requests": [
            {"name": "a", "exactly": exact_request},
            {"name": "b", "exactly": exact_request},
            {"name": "c", "firstAvailable": ways},
            {"name": "d", "firstAvailable": ways},
        ],
        "constraints": [
            {"requests": ["a", "b"], "matchAttribute": "k/pcieRoot"},
            {"requests": ["c", "d"], "distinctAttribute": "d/uuid"},
            {"requests": ["c/aligned", "d/aligned"], "matchAttribute": "k/pcieRoot"},
        ],
    }

    phrases_by_request = dict(requests(claim(devices)))

    assert "1 device of class c; with the same pcieRoot as b" == phrases_by_request["a"]
    assert (
        "1 device of class c; with different uuid, also from d; "
        "if possible with the same pcieRoot as d"
    ) == phrases_by_request["c"]
