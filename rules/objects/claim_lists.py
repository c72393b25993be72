"""Lengths of lists in a claim or class, and fields that their entries need.

Source: k8s.io/kubernetes v1.37.1, pkg/apis/resource/validation/validation.go, validateDeviceClaim and
validateDeviceClassSpec.
"""

from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Final

from findings.field_path import FieldPath
from findings.finding import Code, Finding, error
from kube.api.resource import (
    MAX_ALTERNATIVES,
    MAX_CONSTRAINTS,
    MAX_REQUESTS,
    MAX_SELECTORS,
    DeviceClaimConfiguration,
    DeviceClass,
    DeviceClassConfiguration,
)
from rules.context.context import Context
from rules.context.rule import (
    BUILT_IN_VALIDATION,
    Category,
    Claim,
    ClaimRule,
    ClassRule,
    Scope,
    Subject,
)
from rules.model.requests import MAX_CONFIGS, list_alternatives

_List = tuple[FieldPath, Sized | None, int, str]
"""A path, the list there, its largest length, and a noun phrase for its entries."""


def find_excess_requests(claim: Claim, path: FieldPath, _context: Context) -> Iterator[Finding]:
    """Yield lists of requests and alternatives that are too long."""
    requests = claim.view.requests or ()
    if len(requests) > MAX_REQUESTS:
        yield error(
            Code.TOO_MANY_REQUESTS,
            path.child("requests"),
            f"a claim has at most {MAX_REQUESTS} requests, found more",
            "split it into two claims",
        )
    for index, request in enumerate(requests):
        alternatives = request.first_available or ()
        if len(alternatives) > MAX_ALTERNATIVES:
            yield error(
                Code.TOO_MANY_REQUESTS,
                path.child("requests", index, "firstAvailable"),
                f"a request has at most {MAX_ALTERNATIVES} alternatives, found more",
            )


def find_invalid_lists(claim: Claim, path: FieldPath, _context: Context) -> Iterator[Finding]:
    """Yield lists with too many entries, and configurations without parameters."""
    config = claim.view.config or ()
    yield from _find_excess_entries(_lists(claim, path))
    yield from _find_empty_configs(config, path.child("config"))


def find_invalid_class_lists(
    device_class: Subject[DeviceClass], path: FieldPath, _context: Context
) -> Iterator[Finding]:
    """Yield lists of a class with too many entries, and configurations without parameters."""
    spec, place = device_class.view.spec, path.child("spec")
    lists: tuple[_List, ...] = (
        (
            place.child("selectors"),
            spec.selectors,
            MAX_SELECTORS,
            "a class has at most {} selectors",
        ),
        (place.child("config"), spec.config, MAX_CONFIGS, "a class has at most {} configurations"),
    )
    yield from _find_excess_entries(lists)
    yield from _find_empty_configs(spec.config or (), place.child("config"))


def _lists(claim: Claim, path: FieldPath) -> Iterator[_List]:
    view = claim.view
    constraints, config = path.child("constraints"), path.child("config")
    yield constraints, view.constraints, MAX_CONSTRAINTS, "a claim has at most {} constraints"
    yield config, view.config, MAX_CONFIGS, "a claim has at most {} configurations"
    for alternative in list_alternatives(view):
        selectors = path.join(alternative.path).child("selectors")
        yield (
            selectors,
            alternative.request.selectors,
            MAX_SELECTORS,
            "a request has at most {} selectors",
        )
    for index, constraint in enumerate(view.constraints or ()):
        names = constraints.child(index, "requests")
        yield names, constraint.requests, MAX_REQUESTS, "a constraint names at most {} requests"
    for index, entry in enumerate(view.config or ()):
        names = config.child(index, "requests")
        yield names, entry.requests, MAX_REQUESTS, "a configuration names at most {} requests"


def _find_excess_entries(lists: Iterable[_List]) -> Iterator[Finding]:
    for path, entries, limit, message in lists:
        if len(entries or ()) > limit:
            yield error(Code.INVALID_LIST, path, f"{message.format(limit)}, found more")


def _find_empty_configs(
    configs: Sequence[DeviceClaimConfiguration | DeviceClassConfiguration], path: FieldPath
) -> Iterator[Finding]:
    for index, config in enumerate(configs):
        if config.opaque is None:
            yield error(
                Code.INVALID_LIST,
                path.child(index, "opaque"),
                "is required",
                "name the driver and its parameters, or remove the configuration",
            )


_FIX: Final = "Remove entries, or split the claim; give each configuration `opaque` with a driver and parameters."

RULES: Final[tuple[ClaimRule | ClassRule, ...]] = (
    ClaimRule(
        code=Code.TOO_MANY_REQUESTS,
        scope=Scope.CLAIM,
        category=Category.INVALID,
        validate=find_excess_requests,
        fix="Split it into several claims.",
        no_cel_reason=BUILT_IN_VALIDATION,
    ),
    ClaimRule(
        code=Code.INVALID_LIST,
        scope=Scope.CLAIM,
        category=Category.INVALID,
        validate=find_invalid_lists,
        fix=_FIX,
        no_cel_reason=BUILT_IN_VALIDATION,
    ),
    ClassRule(
        code=Code.INVALID_LIST,
        scope=Scope.CLASS,
        category=Category.INVALID,
        validate=find_invalid_class_lists,
        fix=_FIX,
        no_cel_reason=BUILT_IN_VALIDATION,
    ),
)
