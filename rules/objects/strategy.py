"""Strategy annotations that name no strategy, or one that spreads shares over devices."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from allocator.strategies.registry import (
    ALL,
    ALLOCATES_LESS,
    DEFAULT,
    SPREADING,
    find_strategy,
)
from findings.field_path import FieldPath
from findings.finding import Code, Finding, info, warning
from kube.api.core import Pod
from kube.api.resource import DeviceClass
from kube.errors import FieldError
from kube.names import STRATEGY_ANNOTATION
from rules.context.context import Context
from rules.context.rule import Category, ClassRule, PodRule, Rule, Scope, Subject
from rules.model.naming import find_similar_name

_FIX: Final = "Name a strategy, or remove the annotation."
_FIX_SPREADING: Final = "Use CompactFirst or FirstFit where devices are short."
_NO_CEL: Final = "the strategies depend on the version of the allocator"


def find_unknown_strategy_of_pod(
    pod: Subject[Pod], path: FieldPath, _context: Context
) -> Iterator[Finding]:
    """Yield an annotation of a pod that names no strategy."""
    yield from _find_unknown_strategy(pod.view.annotations, path)


def find_unknown_strategy_of_class(
    device_class: Subject[DeviceClass], path: FieldPath, _context: Context
) -> Iterator[Finding]:
    """Yield an annotation of a DeviceClass that names no strategy."""
    yield from _find_unknown_strategy(device_class.view.metadata.annotations or {}, path)


def _find_unknown_strategy(annotations: Mapping[str, str], path: FieldPath) -> Iterator[Finding]:
    name = annotations.get(STRATEGY_ANNOTATION)
    fault = find_strategy(name.strip()) if name is not None else None
    if name is not None and isinstance(fault, FieldError):
        similar = find_similar_name(name.strip(), (strategy.name for strategy in ALL))
        yield warning(
            Code.UNKNOWN_STRATEGY,
            path.child("metadata", "annotations").key(STRATEGY_ANNOTATION),
            f"{fault.message}, so {DEFAULT} is used",
            f"did you mean {similar}?" if similar else f"use {fault.fix}",
        ).rewritten(name, similar)


def find_spreading_of_pod(
    pod: Subject[Pod], path: FieldPath, _context: Context
) -> Iterator[Finding]:
    """Yield an annotation of a pod with the name of a strategy that spreads shares over devices."""
    yield from _find_spreading(pod.view.annotations, path)


def find_spreading_of_class(
    device_class: Subject[DeviceClass], path: FieldPath, _context: Context
) -> Iterator[Finding]:
    """Yield an annotation of a DeviceClass with the name of a strategy that spreads shares over devices."""
    yield from _find_spreading(device_class.view.metadata.annotations or {}, path)


def _find_spreading(annotations: Mapping[str, str], path: FieldPath) -> Iterator[Finding]:
    if annotations.get(STRATEGY_ANNOTATION, "").strip() in SPREADING:
        yield info(
            Code.STRATEGY_ALLOCATES_LESS,
            path.child("metadata", "annotations").key(STRATEGY_ANNOTATION),
            ALLOCATES_LESS,
            f"leave the annotation out where devices are short ({DEFAULT} is used), or name CompactFirst",
        )


RULES: Final[tuple[Rule[Any], ...]] = (
    PodRule(
        code=Code.UNKNOWN_STRATEGY,
        scope=Scope.POD,
        category=Category.ADVICE,
        validate=find_unknown_strategy_of_pod,
        fix=_FIX,
        no_cel_reason=_NO_CEL,
    ),
    ClassRule(
        code=Code.UNKNOWN_STRATEGY,
        scope=Scope.CLASS,
        category=Category.ADVICE,
        validate=find_unknown_strategy_of_class,
        fix=_FIX,
        no_cel_reason=_NO_CEL,
    ),
    PodRule(
        code=Code.STRATEGY_ALLOCATES_LESS,
        scope=Scope.POD,
        category=Category.ADVICE,
        validate=find_spreading_of_pod,
        fix=_FIX_SPREADING,
        no_cel_reason=_NO_CEL,
    ),
    ClassRule(
        code=Code.STRATEGY_ALLOCATES_LESS,
        scope=Scope.CLASS,
        category=Category.ADVICE,
        validate=find_spreading_of_class,
        fix=_FIX_SPREADING,
        no_cel_reason=_NO_CEL,
    ),
)
