"""Our allocator's verdicts on a scenario, in the form of upstream's."""

from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec

from allocator.model import pools, requests, usage
from allocator.model.devices import NodeDevices
from allocator.model.feature_gates import Features
from allocator.model.outcome import AttemptFailed, BudgetExhausted
from allocator.model.plan import Budget, Plan
from allocator.model.requests import PendingClaims
from allocator.model.taint_rules import apply_taint_rules
from allocator.model.usage import Usage
from allocator.search import results
from allocator.search.attempt import AllocatorOptions
from allocator.search.search import allocate
from kube.api.core import Node
from kube.api.meta import decode, encode
from kube.api.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from testing.oracle.draft import Json
from testing.oracle.scenarios import Scenario
from testing.oracle.verdicts import (
    BUDGET_EXHAUSTED,
    DOES_NOT_FIT,
    FATAL,
    FIT,
    NODE,
    Verdict,
    normal,
)

T = TypeVar("T")

BUDGET: Final = Budget(steps=20_000)
"""More than upstream ever takes before it is cut off."""


class Objects(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario's objects, typed; taint rules are already in the slices."""

    features: Features
    slices: tuple[ResourceSlice, ...]
    classes: dict[str, DeviceClass]
    allocated: tuple[ResourceClaim, ...]
    claims: tuple[ResourceClaim, ...]
    nodes: tuple[Node, ...]


def objects(scenario: Scenario) -> Objects:
    """Return the objects of a scenario."""
    features = msgspec.convert(scenario.get("features", {}), Features)
    slices = _typed(scenario["slices"], ResourceSlice)
    if features.device_taints and features.device_taint_rules:
        slices = apply_taint_rules(slices, _typed(scenario.get("taintRules", ()), DeviceTaintRule))
    return Objects(
        features=features,
        slices=slices,
        classes={one.metadata.name: one for one in _typed(scenario["classes"], DeviceClass)},
        allocated=_typed(scenario["allocated"], ResourceClaim),
        claims=_typed(scenario["claims"], ResourceClaim),
        nodes=_typed(scenario["nodes"], Node),
    )


def _typed(documents: Sequence[Json], kind: type[T]) -> tuple[T, ...]:
    return tuple(decode(encode(document), kind) for document in documents)


def verdicts(scenario: Scenario) -> dict[str, Verdict]:
    """Return the verdict of FirstFit per node."""
    given = objects(scenario)
    rules = AllocatorOptions(features=given.features)
    held = usage.gather_usage(given.allocated, given.features)
    index = pools.build_index(given.slices, given.features)
    found = {}
    for node in given.nodes:
        try:
            asked = requests.resolve_requests(given.claims, given.classes, given.features)
            devices = pools.node_devices(index, node)
            found[node.metadata.name] = verdict(devices, asked, held, rules)
        except AttemptFailed as error:
            found[node.metadata.name] = Verdict(FATAL, message=str(error))
    return found


def verdict(
    devices: NodeDevices, asked: PendingClaims, held: Usage, rules: AllocatorOptions
) -> Verdict:
    """Return the verdict on one node.

    Raises:
        AttemptFailed: The attempt ends on all nodes.
    """
    outcome = allocate(devices, asked, held, rules, budget=BUDGET)
    if isinstance(outcome, Plan):
        ids = results.share_ids("oracle")
        made = results.allocations(outcome, asked, rules.features, ids)
        return Verdict(FIT, normal([msgspec.json.decode(encode(one)) for one in made]))
    if isinstance(outcome, BudgetExhausted):
        return Verdict(BUDGET_EXHAUSTED, message=outcome.progress)
    return Verdict(NODE if outcome.invalid_pools else DOES_NOT_FIT)
