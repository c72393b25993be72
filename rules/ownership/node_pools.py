"""Faults of the settings of owned drivers, and pools of nodes that no node is in.

What the schema of the kind rejects is reported here as well, for files that no API server has seen.
"""

from collections.abc import Iterator
from typing import Final

from allocator.strategies.registry import find_strategy
from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, warning
from findings.text import quote_text
from kube.api.meta import LabelSelector, LabelSelectorRequirement
from kube.api.ownership import (
    MAX_CONSUMERS,
    MAX_DRIVERS,
    MAX_NODE_POOLS,
    OWNERSHIP,
    AllocatorOwnership,
    NodePool,
    OwnedDriver,
)
from kube.errors import FieldError
from rules.context.context import Context
from rules.context.rule import (
    CRD_VALIDATION,
    OTHER_OBJECTS,
    Category,
    OwnershipRule,
    Scope,
    Subject,
)
from rules.model.naming import find_duplicates

Ownership = Subject[AllocatorOwnership]

MAX_COMPARISONS: Final = 20_000
"""Pairs of a pool and a kind of node that one validation compares, each in microseconds."""
_WITH_VALUES: Final = frozenset({"In", "NotIn"})
_OPERATORS: Final = _WITH_VALUES | {"Exists", "DoesNotExist"}


def _drivers(ownership: Ownership, path: FieldPath) -> Iterator[tuple[FieldPath, OwnedDriver]]:
    for index, driver in enumerate((ownership.view.spec.drivers or ())[:MAX_DRIVERS]):
        yield path.child("spec", "drivers", index), driver


def _pools(ownership: Ownership, path: FieldPath) -> Iterator[tuple[FieldPath, NodePool]]:
    for place, driver in _drivers(ownership, path):
        for index, pool in enumerate((driver.pools or ())[:MAX_NODE_POOLS]):
            yield place.child("pools", index), pool


# --- the text of the object -----------------------------------------------------------------------


def find_invalid_settings(
    ownership: Ownership, path: FieldPath, _context: Context
) -> Iterator[Finding]:
    """Yield another name than that of the only object, numbers outside their range, and invalid selectors."""
    name = ownership.view.metadata.name
    if name != OWNERSHIP:
        yield _invalid(
            path.child("metadata", "name"),
            f"{quote_text(name)} is not read; there is one AllocatorOwnership",
            f"name it {OWNERSHIP}",
        )
    for place, driver in _drivers(ownership, path):
        yield from _invalid_limits(place, driver)
        count = len(driver.pools or ())
        if count > MAX_NODE_POOLS:
            yield _invalid(
                place.child("pools"),
                f"{count} pools, more than {MAX_NODE_POOLS}",
                "join pools with equal settings by an expression on their label",
            )
    for place, pool in _pools(ownership, path):
        yield from _invalid_limits(place, pool)
        selector = place.child("nodeSelector", "matchExpressions")
        for index, requirement in enumerate(pool.node_selector.match_expressions or ()):
            yield from _invalid_requirement(selector.child(index), requirement)


def _invalid_limits(place: FieldPath, settings: OwnedDriver | NodePool) -> Iterator[Finding]:
    for field, number in (
        ("maxConsumersPerDevice", settings.max_consumers_per_device),
        ("maxConsumersPerNode", settings.max_consumers_per_node),
    ):
        if number is not None and not 0 <= number <= MAX_CONSUMERS:
            yield _invalid(
                place.child(field),
                f"{number} is out of range",
                f"write a number from 1 to {MAX_CONSUMERS}, or 0 for no limit",
            )


def _invalid_requirement(
    place: FieldPath, requirement: LabelSelectorRequirement
) -> Iterator[Finding]:
    operator = requirement.operator
    if not requirement.key:
        yield _invalid(place.child("key"), "no label is named", "name a label of nodes")
    if operator not in _OPERATORS:
        yield _invalid(
            place.child("operator"),
            f"{quote_text(operator)} is not an operator, so no node is selected",
            f"use one of {', '.join(sorted(_OPERATORS))}",
        )
    elif (operator in _WITH_VALUES) != bool(requirement.values):
        needs = "needs values" if operator in _WITH_VALUES else "has no values"
        yield _invalid(
            place.child("values"),
            f"operator {operator} {needs}",
            "list values with In and NotIn, and none with Exists and DoesNotExist",
        )


def _invalid(path: FieldPath, message: str, fix: str) -> Finding:
    return error(Code.INVALID_ALLOCATOR_OWNERSHIP, path, message, fix)


def find_duplicate_names(
    ownership: Ownership, path: FieldPath, _context: Context
) -> Iterator[Finding]:
    """Yield duplicate drivers, and duplicate names of the pools of a driver."""
    drivers = list(_drivers(ownership, path))
    yield from find_duplicates(
        (driver.name for _, driver in drivers), path.child("spec", "drivers")
    )
    for place, driver in drivers:
        names = (pool.name for pool in (driver.pools or ())[:MAX_NODE_POOLS])
        yield from find_duplicates(names, place.child("pools"))


def find_unknown_strategies(
    ownership: Ownership, path: FieldPath, _context: Context
) -> Iterator[Finding]:
    """Yield default strategies that do not exist; that of the bridge's settings is used instead."""
    for place, pool in _pools(ownership, path):
        name = pool.default_strategy
        fault = None if name is None else find_strategy(name)
        if isinstance(fault, FieldError):
            yield error(
                Code.UNKNOWN_STRATEGY,
                place.child("defaultStrategy"),
                f"{fault.message}, so that of the bridge's settings is used",
                f"use {fault.fix}",
            )


def find_shadowed_pools(
    ownership: Ownership, path: FieldPath, _context: Context
) -> Iterator[Finding]:
    """Yield pools without effect, since an earlier pool selects all of their nodes."""
    for place, driver in _drivers(ownership, path):
        earlier: list[tuple[str, frozenset[_Condition]]] = []
        for index, pool in enumerate((driver.pools or ())[:MAX_NODE_POOLS]):
            conditions = _conditions(pool.node_selector)
            first = next((name for name, wider in earlier if wider <= conditions), None)
            if first is not None:
                yield warning(
                    Code.SHADOWED_POOL,
                    place.child("pools", index),
                    f"pool {quote_text(first)} comes before it and selects all of its nodes, so pool"
                    f" {quote_text(pool.name)} has none",
                    "put the pool with more conditions first",
                )
            earlier.append((pool.name, conditions))


_Condition = tuple[str, str, frozenset[str]]


def _conditions(selector: LabelSelector) -> frozenset[_Condition]:
    """Return the conditions of a selector; one with some of them selects at least the same nodes."""
    return frozenset(
        {(key, "In", frozenset({value})) for key, value in (selector.match_labels or {}).items()}
        | {
            (requirement.key, requirement.operator, frozenset(requirement.values or ()))
            for requirement in selector.match_expressions or ()
        }
    )


# --- the cluster ----------------------------------------------------------------------------------


def find_pools_without_nodes(
    ownership: Ownership, path: FieldPath, context: Context
) -> Iterator[Finding]:
    """Yield pools that select none of the cluster's nodes."""
    cluster = context.current_cluster
    nodes = cluster.nodes.values() if cluster is not None else ()
    if not any(node.metadata.labels for node in nodes):
        return  # No nodes are known, or only by the slices that name them.
    pools = list(_pools(ownership, path))
    keys = {key for _, pool in pools for key, _, _ in _conditions(pool.node_selector)}
    # Most nodes differ in no label that a pool reads.
    kinds = {
        tuple(sorted((key, labels[key]) for key in keys & labels.keys()))
        for labels in (node.metadata.labels or {} for node in nodes)
    }
    if len(kinds) * len(pools) > MAX_COMPARISONS:
        return  # A warning is not worth the time of a review.
    projections = [dict(kind) for kind in sorted(kinds)]
    for place, pool in pools:
        if not any(map(pool.node_selector.matches, projections)):
            yield warning(
                Code.SELECTS_NO_NODE,
                place.child("nodeSelector"),
                f"selects none of {len(nodes)} nodes, so pool {quote_text(pool.name)} changes nothing",
                "label the nodes of the pool, or correct the selector",
            )


RULES: Final[tuple[OwnershipRule, ...]] = (
    OwnershipRule(
        code=Code.INVALID_ALLOCATOR_OWNERSHIP,
        scope=Scope.OWNERSHIP,
        category=Category.INVALID,
        validate=find_invalid_settings,
        fix="Write numbers within their range and valid selectors, in the object default.",
        no_cel_reason=CRD_VALIDATION,
    ),
    OwnershipRule(
        code=Code.DUPLICATE_NAME,
        scope=Scope.OWNERSHIP,
        category=Category.INVALID,
        validate=find_duplicate_names,
        fix="Use unique names.",
        no_cel_reason=CRD_VALIDATION,
    ),
    OwnershipRule(
        code=Code.UNKNOWN_STRATEGY,
        scope=Scope.OWNERSHIP,
        category=Category.INVALID,
        validate=find_unknown_strategies,
        fix="Name a strategy, or leave defaultStrategy out.",
        no_cel_reason="the strategies depend on the version of the allocator",
    ),
    OwnershipRule(
        code=Code.SHADOWED_POOL,
        scope=Scope.OWNERSHIP,
        category=Category.ADVICE,
        validate=find_shadowed_pools,
        fix="Put the pool with more conditions first, or remove it.",
        no_cel_reason="comparing all pools with each other costs a policy too much",
    ),
    OwnershipRule(
        code=Code.SELECTS_NO_NODE,
        scope=Scope.OWNERSHIP,
        category=Category.NOT_YET,
        validate=find_pools_without_nodes,
        fix="Label the nodes of the pool, or correct the selector.",
        no_cel_reason=OTHER_OBJECTS,
    ),
)
