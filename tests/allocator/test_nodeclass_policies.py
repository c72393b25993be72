"""What policies read distinguishes nodes, and nothing else does."""

from collections.abc import Mapping

import pytest

from allocator import nodeclass
from allocator.core.model import DeviceUse, PublishedDevice
from allocator.core.problem import Rules
from allocator.core.rules import compiled
from kube.api.policy import Enforcement
from tests.allocator.builders import attribute_of, device, node_with, policy, pool_of, rule

MODE = attribute_of("mode")
BY = policy(
    rule("a", f'{attribute_of("?mode")}.orValue("") == "a"', only=f'{MODE} == "a"'),
    rule("large", 'device.capacity["gpu.example.com"].?memory.hasValue()', groups="g"),
)


@pytest.mark.parametrize(
    ("want", "here", "there"),
    [
        pytest.param(
            True,
            {"uuid": ("1", "2"), "mode": ("a", "b")},
            {"uuid": ("3", "4"), "mode": ("a", "b")},
            id="hardware under other names",
        ),
        pytest.param(
            False,
            {"uuid": ("1", "1"), "mode": ("a", "b")},
            {"uuid": ("3", "4"), "mode": ("a", "b")},
            id="the same hardware and different hardware",
        ),
        pytest.param(
            False,
            {"uuid": ("1", "2"), "mode": ("a", "b")},
            {"uuid": ("1", "2"), "mode": ("b", "a")},
            id="an attribute that a rule reads",
        ),
        pytest.param(
            True,
            {"uuid": ("1", "2"), "mode": ("a", "b"), "serial": ("1", "2")},
            {"uuid": ("1", "2"), "mode": ("a", "b"), "serial": ("3", "4")},
            id="an attribute that no rule reads",
        ),
    ],
)
def test_fixed(
    want: bool, here: Mapping[str, tuple[str, str]], there: Mapping[str, tuple[str, str]]
) -> None:
    rules = Rules(policies=(compiled(BY),))

    looks = [
        nodeclass.fixed(
            node_with(
                pool_of(
                    *(
                        device(
                            f"gpu-{place}",
                            attributes={name: values[place] for name, values in node.items()},
                        )
                        for place in (0, 1)
                    ),
                    pool=name,
                )
            ),
            rules,
        )
        for name, node in (("node-1", here), ("node-2", there))
    ]

    assert want == (looks[0] == looks[1])


@pytest.mark.parametrize(
    ("want", "enforcement"), [(False, Enforcement.ENFORCE), (True, Enforcement.AUDIT)]
)
def test_a_capacity_that_an_enforced_rule_reads(want: bool, enforcement: Enforcement) -> None:
    by = policy(*(BY.spec.rules or ()), enforcement=enforcement)
    rules = Rules(policies=(compiled(by),))

    looks = {
        nodeclass.fixed(node_with(pool_of(device(capacity=capacity))), rules)
        for capacity in ({}, {"memory": "8Gi"})
    }

    assert want == (len(looks) == 1)


def test_what_was_last_seen_of_a_vanished_device() -> None:
    pool = pool_of(device("gpu-0"))
    held = {"gone": DeviceUse(exclusive=True)}

    def gone(mode: str) -> PublishedDevice:
        return pool_of(device("gone", attributes={"mode": mode})).devices[0]

    looks = {
        nodeclass.use(pool, held, Rules(policies=(compiled(BY),), tombstones={each.id: each}))
        for each in (gone("a"), gone("b"))
    }

    assert 2 == len(looks)
