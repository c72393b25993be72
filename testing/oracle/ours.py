"""Our allocator's verdicts on a scenario, in the form of upstream's."""

from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec

from allocator.model import pools, requests, slice_index, usage
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
    allocated_claims: tuple[ResourceClaim, ...]
    claims: tuple[ResourceClaim, ...]
    nodes: tuple[Node, ...]


def objects(scenario: Scenario) -> Objects:
    """Return the objects of a scenario."""
    features = msgspec.convert(scenario.get("features", {}), Features)
    slices = _typed_objects(scenario["slices"], ResourceSlice)
    if features.device_taints and features.device_taint_rules:
        slices = apply_taint_rules(
            slices, _typed_objects(scenario.get("taintRules", ()), DeviceTaintRule)
        )
    return Objects(
        features=features,
        slices=slices,
        classes={
            class_.metadata.name: class_
            for class_ in _typed_objects(scenario["classes"], DeviceClass)
        },
        allocated_claims=_typed_objects(scenario["allocated"], ResourceClaim),
        claims=_typed_objects(scenario["claims"], ResourceClaim),
        nodes=_typed_objects(scenario["nodes"], Node),
    )


def _typed_objects(documents: Sequence[Json], kind: type[T]) -> tuple[T, ...]:
    return tuple(decode(encode(document), kind) for document in documents)


def verdicts(scenario: Scenario) -> dict[str, Verdict]:
    """Return the verdict of FirstFit per node."""
    typed_objects = objects(scenario)
    rules = AllocatorOptions(features=typed_objects.features)
    usage_ = usage.gather_usage(typed_objects.allocated_claims, typed_objects.features)
    index = slice_index.build_index(typed_objects.slices, typed_objects.features)
    verdicts = {}
    for node in typed_objects.nodes:
        try:
            pending = requests.resolve_requests(
                typed_objects.claims, typed_objects.classes, typed_objects.features
            )
            devices = pools.node_devices(index, node)
            verdicts[node.metadata.name] = verdict(devices, pending, usage_, rules)
        except AttemptFailed as error:
            verdicts[node.metadata.name] = Verdict(FATAL, message=str(error))
    return verdicts


def verdict(
    devices: NodeDevices, pending: PendingClaims, usage_: Usage, rules: AllocatorOptions
) -> Verdict:
    """Return the verdict on one node.

    Raises:
        AttemptFailed: The attempt ends on all nodes.
    """
    outcome = allocate(devices, pending, usage_, rules, budget=BUDGET)
    if isinstance(outcome, Plan):
        ids = results.share_ids("oracle")
        allocations = results.allocations(outcome, pending, rules.features, ids)
        return Verdict(
            FIT, normal([msgspec.json.decode(encode(allocation)) for allocation in allocations])
        )
    if isinstance(outcome, BudgetExhausted):
        return Verdict(BUDGET_EXHAUSTED, message=outcome.progress)
    return Verdict(NODE if outcome.invalid_pools else DOES_NOT_FIT)
