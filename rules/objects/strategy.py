"""Strategy annotations that name no strategy; the allocator then uses its default."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from allocator.strategies.registry import DEFAULT, find_strategy
from findings.field_path import FieldPath
from findings.finding import Code, Finding, warning
from kube.api.core import Pod
from kube.api.resource import DeviceClass
from kube.errors import FieldError
from kube.names import STRATEGY_ANNOTATION
from rules.context import Context
from rules.rule import Category, ClassRule, PodRule, Rule, Scope, Subject

_FIX: Final = "Name a strategy, or remove the annotation."
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
    if isinstance(fault, FieldError):
        yield warning(
            Code.UNKNOWN_STRATEGY,
            path.child("metadata", "annotations").key(STRATEGY_ANNOTATION),
            f"{fault.message}, so {DEFAULT} is used",
            f"use {fault.fix}",
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
)
