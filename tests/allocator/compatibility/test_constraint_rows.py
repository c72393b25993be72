"""The worked rows of mutual exclusion: devices in use, requests, and both verdicts.

`kep` is the verdict without a policy, by groups and counters as in 1.37; `ours` is what a policy
with a rule per device adds, as fragments of the refusal in the order in which they are told (nothing
for an allowed device). E1 to E7 are the messages of clause.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from allocator.compatibility import constraint as compatibility
from allocator.compatibility.compile import CompiledPolicy, compile_policy
from allocator.features import compatibility_groups as groups
from allocator.features import partitionable_devices as counters
from allocator.model.constraint import Constraint
from allocator.model.devices import DeviceId, NodeDevices, PoolId, PoolState
from allocator.model.feature_gates import Features
from allocator.model.outcome import Reason, RejectionReason
from allocator.model.plan import Plan
from allocator.model.pools import node_devices
from allocator.model.requests import PendingClaims, resolve_requests
from allocator.model.slice_index import build_index
from allocator.model.usage import Consumer, DeviceUse, Usage
from allocator.search.attempt import AllocatorOptions
from allocator.search.search import allocate
from kube.api.resource import (
    Device,
    DeviceRequest,
    DeviceSubRequest,
    ResourceClaim,
)
from testing.allocation.builders import (
    DRIVER,
    alternative,
    claim,
    classes,
    consumes,
    counter_set,
    device,
    first_of,
    node_with,
    policy,
    pool_of,
    request,
    resolved_request,
    rule,
    slice_of,
)
from testing.allocation.builders import node as at_node

ON = Features(compatibility_groups=True)
HERE = f'device.attributes["{DRIVER}"]'
MODE = f"{HERE}.partitioningMode"
SOFT = f'{MODE} in ["GPUFractioning", "MPSSharing"]'
MIG = f'{MODE} == "MIGSlicing"'

# --- the catalog ----------------------------------------------------------------------------------

RULES: Mapping[str, str] = {
    "F0": "false",
    "R0": SOFT,
    "R1": SOFT,
    "S0": SOFT,
    "G1": SOFT,
    "M0": MIG,
    "M1": MIG,
    "X": f'{MODE} == "Y"',
    "Y": f'{MODE} == "Z"',
    "P1": f'{HERE}.physicalDevice != "dev-0"',
    "NB": MODE,
    "SY": "device.attributes[",
    "unless": f'!has({MODE}) || {MODE} == "W"',
    "multi": "device.allowMultipleAllocations",
    "full": f'{HERE}.physicalDevice != "dev-0"',
    "part": f'{MODE} == "MIGSlicing"',
}
"""Name of a device to what it demands of every other."""


def build_row_device(
    name: str,
    sm: int,
    mode: str | None = None,
    group: str | None = None,
    *,
    on: str = "gpu-0-cs",
    shared: bool | None = None,
    physical: str | None = None,
) -> Device:
    attributes = {"partitioningMode": mode, "physicalDevice": physical, "rule": name}
    return device(
        name,
        consumes(on, sm=sm, groups=[group] if group else None),
        attributes={key: value for key, value in attributes.items() if value is not None},
        shared=shared,
    )


def on_q(name: str, sm: int = 1, /, **sets: str) -> Device:
    """A device of pool q; the groups are letters, or words joined by commas."""
    return device(
        name,
        *(consumes(set_, sm=sm, groups=text.split(",")) for set_, text in sets.items()),
        attributes={"rule": name},
    )


CATALOG: Sequence[tuple[str, Device]] = (
    ("p", build_row_device("F0", 152, "None")),
    ("p", build_row_device("R0", 76, "GPUFractioning", "soft", shared=True)),
    ("p", build_row_device("R1", 76, "GPUFractioning", "soft", shared=True)),
    ("p", build_row_device("M0", 2, "MIGSlicing", "mig")),
    ("p", build_row_device("M1", 2, "MIGSlicing", "mig")),
    ("p", build_row_device("S0", 15, "MPSSharing", "soft", shared=True)),
    ("p", build_row_device("G1", 76, "GPUFractioning", "soft", on="gpu-1-cs", shared=True)),
    ("p", build_row_device("U0", 4)),
    ("p", build_row_device("U1", 4)),
    ("p", build_row_device("X", 1, "X")),
    ("p", build_row_device("Y", 1, "Y")),
    ("p", build_row_device("PY", 1, "Y")),
    ("p", build_row_device("PW", 1, "W")),
    ("p", build_row_device("P1", 1, "F", physical="dev-0")),
    ("p", build_row_device("of-dev-0", 1, "F", physical="dev-0")),
    ("p", build_row_device("of-dev-1", 1, "F", physical="dev-1")),
    ("p", build_row_device("NB", 1, "W")),
    ("p", build_row_device("SY", 1, "W")),
    ("p", build_row_device("unless", 1, "W")),
    ("p", build_row_device("multi", 1, "W")),
    ("p", build_row_device("full", 1, physical="dev-0")),
    ("p", build_row_device("part", 1, "MIGSlicing")),
    ("q", on_q("A", cs="a,b")),
    ("q", on_q("B", cs="b,c")),
    ("q", on_q("C", cs="a,c")),
    ("q", on_q("foo", 17, cs="foo,bar")),
    ("q", on_q("bar", 2, cs="bar")),
    ("q", on_q("fooonly", 2, cs="foo")),
    ("q", on_q("m1", cs="mig")),
    ("q", on_q("m2", cs2="mig")),
    ("q", on_q("v2", cs2="vgpu")),
    ("q", on_q("BR", cs="mig", cs2="vgpu")),
    ("q", on_q("BM", cs="mig", cs2="mig")),
    ("z", on_q("om", cs="vgpu")),
)
SETS: Mapping[str, Sequence[str]] = {
    "p": ("gpu-0-cs", "gpu-1-cs"),
    "q": ("cs", "cs2"),
    "z": ("cs",),
}
POOL_OF = {first_device.name: pool for pool, first_device in CATALOG}
DEVICES = {first_device.name: first_device for _, first_device in CATALOG}


def compiled_policy() -> CompiledPolicy:
    """A rule per device that has one; groups are those of the slices."""
    return compile_policy(policy(*(
        rule(name.lower(), f'{HERE}.?rule.orValue("") == "{name}"', only=text)
        for name, text in RULES.items()
    )))  # fmt: skip


# --- rows -----------------------------------------------------------------------------------------

E1 = "need counter sm"
E2 = "compatibility groups"
E3 = "do not accept device"
E4 = "are not accepted by device"
E5 = "fails"
E6 = "rule"
E7 = "in use"


class Row(NamedTuple):
    number: str
    held_device: str
    requested_devices: str
    kep: bool | None
    ours: tuple[str, ...] = ()
    namespace: str = "default"
    sm: int = 152
    vanished: str = ""
    admin: bool = False


ROWS = (
    Row("1", "", "F0", True),
    Row("2", "F0", "R0", False, (E1, E3)),
    Row("3", "F0", "M0", False, (E1, E3)),
    Row("4", "F0", "S0", False, (E1, E3)),
    Row("5", "R0", "F0", False, (E1, E3)),
    Row("6", "R0", "S0", True),
    Row("7", "S0", "R0", True),
    Row("8", "R0", "M0", False, (E2,)),
    Row("9", "M0", "R0", False, (E2,)),
    Row("10", "M0", "M1", True),
    Row("11", "M0", "S0", False, (E2,)),
    Row("11, the other way", "S0", "M0", False, (E2,)),
    Row("12", "M0", "F0", False, (E1, E3)),
    Row("13", "R0", "R0", True),
    Row("14", "R0", "R1", True),
    Row("15", "R0 S0", "R1", False, (E1,)),
    Row("16", "M0", "G1", True),
    Row("17", "U0", "M0", False, (E2, E5)),
    Row("18", "M0", "U0", False, (E2, E5)),
    Row("19", "U0", "U1", True),
    Row("20", "foo", "bar", True),
    Row("21", "foo", "m1", False, (E2,)),
    Row("22", "foo bar", "fooonly", False, (E2,)),
    Row("22, without bar", "foo", "fooonly", True),
    Row("23", "foo fooonly", "bar", False, (E2,)),
    Row("24", "A B", "C", False, (E2,)),
    Row("25", "A", "C", True),
    Row("26", "", "A B C", False, (E2,)),
    Row("27", "m1", "BR", True),
    Row("28", "m1 m2", "BR", False, (E2, "counter set cs2")),
    Row("29", "m1 v2", "BR", True),
    Row("30", "m1 v2", "BM", False, (E2, "counter set cs2")),
    Row("31", "m1", "v2", True),
    Row("32", "m1", "om", True),
    Row("33", "M0", "R0", False, (E2, "a claim in another namespace"), namespace="team-b"),
    Row("34", "", "M0 R0", False, (E2,)),
    Row("35", "", "M0 M1", True),
    Row("36", "", "S0 S0", True),
    Row("37", "M0", "R0", False, (E2,), admin=True),
    Row("37b", "M0", "M0", False, (E7,)),
    Row("38", "M0", "M0", True, admin=True),
    Row("39", "F0", "M0", True, (E1,), vanished="F0"),
    Row("40", "M0 S0", "M1", False, (E2, "already violate the policy")),
    Row("41", "M0 U0", "M1", True, (E2, "already violate the policy")),
    Row("41, the undeclared", "M0 U0", "U1", False, (E2, "already violate the policy")),
    Row("42", "U0 M0", "M1", False, (E2, "already violate the policy")),
    Row("42, the undeclared", "U0 M0", "U1", True, (E2, "already violate the policy")),
    Row("43", "X", "Y", True, (E3,)),
    Row("44", "Y", "X", True, (E4,)),
    Row("45", "X", "PY", True),
    Row("45, the other way", "PY", "X", True),
    Row("46", "X", "PW", True, (E4,)),
    Row("47", "PW", "X", True, (E3,)),
    Row("48", "P1", "of-dev-0", True, (E4,)),
    Row("48b", "full", "part", True, (E5, "no such key: partitioningMode")),
    Row("49", "P1", "of-dev-1", True),
    Row("50", "NB", "PW", True, (E6,)),
    Row("51", "SY", "PW", True, (E6,)),
    Row("51, at publish", "", "SY", True, (E6,)),
    Row("51, never allocated", "", "PW", True),
    Row("52", "unless", "U0", True),
    Row("53", "multi", "R0", False, (E3,)),
    Row("57", "R0 S0", "S0", True, sm=80),
)  # fmt: skip
"""Rows 54 to 56 are about whole attempts: see below."""


def node(row: Row) -> NodeDevices:
    """The pools with the devices that the row names, in its order."""
    named_document = dict.fromkeys([*row.held_device.split(), *row.requested_devices.split(), "SY"])
    pools = (
        pool_of(
            *(
                DEVICES[name]
                for name in named_document
                if POOL_OF[name] == pool and name != row.vanished
            ),
            pool=pool,
            counters=[counter_set(name, sm=row.sm) for name in sets],
        )
        for pool, sets in SETS.items()
    )
    return node_with(*pools)


def usage(row: Row) -> Usage:
    pools: dict[PoolId, dict[str, DeviceUse]] = {}
    for name in row.held_device.split():
        holder = Consumer(namespace=row.namespace, claim=f"holds-{name.lower()}", request="gpu")
        shares = frozenset(["share-0"]) if DEVICES[name].allow_multiple_allocations else frozenset()
        use = DeviceUse(exclusive=not shares, share_ids=shares, consumers=(holder,))
        pools.setdefault(PoolId(DRIVER, POOL_OF[name]), {})[name] = use
    return Usage(pools=pools)


class Attempt:
    """The search's order of checks for devices that are named one by one."""

    def __init__(self, row: Row, *policies: CompiledPolicy) -> None:
        self.node = node(row)
        self.usage = usage(row)
        self.request = resolved_request("gpu", admin=row.admin)
        node_ = node(row._replace(vanished=""))
        self.tombstones = {
            device_.id: device_ for device_ in node_.devices if device_.id.device == row.vanished
        }
        single = PendingClaims(claims=(claim(name="wants"),), requests=(((self.request,),),))
        enforced_drivers = compatibility.enforced_drivers(policies)
        constraints: Sequence[Constraint | None] = (
            groups.build_constraint(self.node, self.usage, ON, enforced_drivers),
            counters.build_constraint(self.node, self.usage, ON),
            compatibility.build_constraint(
                self.node, self.usage, policies, single, self.tombstones
            ),
        )
        self.constraints = [constraint for constraint in constraints if constraint is not None]
        self.shared: set[str] = set()

    def refusals(self, name: str) -> list[RejectionReason]:
        """Choose a device, or tell all that speaks against it."""
        device_id = DeviceId(DRIVER, POOL_OF[name], name)
        position = self.node.positions[device_id]
        use = self.usage.of(device_id)
        if use is not None and use.exclusive and not self.request.admin:
            return [RejectionReason(reason=Reason.ALLOCATED, subject="in use")]
        further = name in self.shared or (use is not None and use.is_shared)
        rejection_reasons = [
            refusal
            for constraint in self.constraints
            if (refusal := constraint.rejection(self.request, position, further_share=further))
            is not None
        ]
        for constraint in () if rejection_reasons else self.constraints:
            assert constraint.add(self.request, position, further_share=further)
        if DEVICES[name].allow_multiple_allocations:
            self.shared.add(name)
        return rejection_reasons


def refusals(row: Row, *policies: CompiledPolicy) -> list[RejectionReason]:
    attempt = Attempt(row, *policies)
    return [refusal for name in row.requested_devices.split() for refusal in attempt.refusals(name)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"row {row.number}")
def test_without_a_policy_the_kep_decides(row: Row) -> None:
    assert row.kep is (not refusals(row))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"row {row.number}")
def test_with_a_policy_both_directions_decide(row: Row) -> None:
    text = "; ".join(refusal.predicate for refusal in refusals(row, compiled_policy()))

    assert bool(row.ours) is bool(text)
    places = [text.find(fragment) for fragment in row.ours]
    assert -1 not in places, text
    assert sorted(places) == places, text
    assert "holds-" not in text or row.namespace == "default"


# --- whole attempts -------------------------------------------------------------------------------


def named_device_request(name: str, **fields: Any) -> DeviceRequest:
    """A request for one device of the catalog."""
    return request("gpu", f'{HERE}.?rule.orValue("") == "{name}"', **fields)


def searched(row: Row, *claims: ResourceClaim, policies: Sequence[CompiledPolicy]) -> list[str]:
    """The devices that the search chooses; none when it finds none."""
    attempt = Attempt(row)
    outcome = allocate(
        attempt.node,
        resolve_requests(claims, classes(), ON),
        attempt.usage,
        AllocatorOptions(features=ON, policies=tuple(policies), tombstones=attempt.tombstones),
    )
    if not isinstance(outcome, Plan):
        return []
    return [choice.device.id.device for choices in outcome.choices for choice in choices]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"row {row.number}")
def test_the_search_says_the_same(row: Row) -> None:
    wanted_names = row.requested_devices.split()
    claims = [
        claim(named_device_request(name, admin_access=row.admin or None), name=f"wants-{place}")
        for place, name in enumerate(wanted_names)
    ]

    kep = searched(row, *claims, policies=[])
    ours = searched(row, *claims, policies=[compiled_policy()])

    assert (wanted_names if row.kep else []) == kep
    assert ([] if row.ours else wanted_names) == ours


def test_row_54_without_the_gate_a_slice_with_groups_makes_its_pool_incomplete() -> None:
    listed_devices = [DEVICES["F0"], DEVICES["M0"]]
    slices = [
        slice_of(*listed_devices, name="devices", count=2),
        slice_of(name="counters", count=2, counters=[counter_set("gpu-0-cs", sm=152)]),
    ]

    states = {
        gate: node_devices(
            build_index(slices, Features(compatibility_groups=gate)), at_node()
        ).pools[0]
        for gate in (True, False)
    }

    assert PoolState.COMPLETE is states[True].state
    assert PoolState.INCOMPLETE is states[False].state


@pytest.mark.parametrize(
    "policies", [[], [compiled_policy()]], ids=["without a policy", "with one"]
)
def test_row_55_a_second_alternative_takes_what_goes_together(
    policies: Sequence[CompiledPolicy],
) -> None:
    def only(name: str, device_name: str) -> DeviceSubRequest:
        return alternative(name, f'{HERE}.?rule.orValue("") == "{device_name}"')

    wants_claim = claim(first_of("gpu", only("mig", "M0"), only("fraction", "R1")))

    assert ["R1"] == searched(Row("55", "R0", "M0 R1", None), wants_claim, policies=policies)


@pytest.mark.parametrize(
    "policies", [[], [compiled_policy()]], ids=["without a policy", "with one"]
)
def test_row_56_all_devices_have_to_go_together(policies: Sequence[CompiledPolicy]) -> None:
    everything = claim(request("gpu", f'{HERE}.rule in ["M0", "R0"]', count=None))
    alike = claim(request("gpu", f'{HERE}.rule in ["M0", "M1"]', count=None))

    assert [] == searched(Row("56", "", "M0 R0", None), everything, policies=policies)
    assert ["M0", "M1"] == searched(Row("56", "", "M0 M1", None), alike, policies=policies)
