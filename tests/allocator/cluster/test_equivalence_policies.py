"""Nodes differ by the values that policies read, and by nothing else."""

from collections.abc import Mapping

import pytest

from allocator.cluster import equivalence
from allocator.compatibility.compile import compile_policy
from allocator.model.devices import PublishedDevice
from allocator.model.usage import DeviceUse
from allocator.search.attempt import AllocatorOptions
from kube.api.policy import Enforcement
from testing.allocation.builders import attribute_of, device, node_with, policy, pool_of, rule

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
def test_published_key(
    want: bool, here: Mapping[str, tuple[str, str]], there: Mapping[str, tuple[str, str]]
) -> None:
    rules = AllocatorOptions(policies=(compile_policy(BY),))

    looks = [
        equivalence.published_key(
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
    rules = AllocatorOptions(policies=(compile_policy(by),))

    looks = {
        equivalence.published_key(node_with(pool_of(device(capacity=capacity))), rules)
        for capacity in ({}, {"memory": "8Gi"})
    }

    assert want == (len(looks) == 1)


def test_what_was_last_seen_of_a_vanished_device() -> None:
    pool = pool_of(device("gpu-0"))
    held_device_uses = {"gone": DeviceUse(exclusive=True)}

    def gone_device(mode: str) -> PublishedDevice:
        return pool_of(device("gone", attributes={"mode": mode})).devices[0]

    looks = {
        equivalence.usage_key(
            pool,
            held_device_uses,
            AllocatorOptions(
                policies=(compile_policy(BY),), tombstones={first_device.id: first_device}
            ),
        )
        for first_device in (gone_device("a"), gone_device("b"))
    }

    assert 2 == len(looks)
