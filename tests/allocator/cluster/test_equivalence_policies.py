"""Nodes differ by the values that policies read, and by nothing else."""

from collections.abc import Mapping

import pytest

from allocator.cluster import equivalence
from allocator.cluster.cluster import Cluster
from allocator.compatibility.compile import compile_policy
from allocator.model.devices import PublishedDevice
from allocator.model.usage import DeviceUse
from allocator.search.attempt import AllocatorOptions
from kube.api.policy import Enforcement
from testing.allocation.builders import (
    allocated_claim,
    attribute_of,
    claim,
    classes,
    device,
    node,
    node_with,
    policy,
    pool_of,
    request,
    result,
    rule,
    slice_of,
)

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


@pytest.mark.parametrize(
    ("expected", "hardware"),
    [
        pytest.param(("gpu-1", "gpu-0"), (("0", "1"), ("1", "2")), id="on that of the first"),
        pytest.param(("gpu-0", "gpu-1"), (("1", "2"), ("0", "1")), id="in the other order"),
        pytest.param(("gpu-0", "gpu-0"), (("1", "2"), ("3", "4")), id="on that of none"),
        pytest.param(("gpu-1", "gpu-1"), (("0", "1"), ("0", "2")), id="on that of both first"),
    ],
)
def test_hardware_that_a_vanished_device_is_on(
    expected: tuple[str, str], hardware: tuple[tuple[str, str], tuple[str, str]]
) -> None:
    """The devices of the nodes are on other hardware, and nothing else differs."""
    placed = dict(zip(("node-1", "node-2"), hardware, strict=True))
    by = policy(rule("alone", "true", only="false"), physical_attributes=("uuid",))
    tombstones = [
        pool_of(device("gone", attributes={"uuid": "0"}), pool=name).devices[0] for name in placed
    ]
    cluster = Cluster(
        slices=[
            slice_of(
                device("gpu-0", attributes={"uuid": first}),
                device("gpu-1", attributes={"uuid": second}),
                pool=name,
            )
            for name, (first, second) in placed.items()
        ],
        nodes=[node(name) for name in placed],
        claims=[allocated_claim(result("gone", pool=name), name=name) for name in placed],
        classes=classes(),
        options=AllocatorOptions(
            policies=(compile_policy(by),),
            tombstones={tombstone.id: tombstone for tombstone in tombstones},
        ),
    )

    verdicts = cluster.verdicts(cluster.resolve([claim(request())]))

    plans = [verdicts.plan(name) for name in placed]
    chosen_devices = tuple([plan.choices[0][0].device.id.device for plan in plans if plan])
    assert chosen_devices == expected
    assert len(verdicts.classes) == len(set(expected))


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
