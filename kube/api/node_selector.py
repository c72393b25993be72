"""Node selectors of core/v1: their validation, and their evaluation on a node.

Source: k8s.io/component-helpers v0.37.1, scheduling/corev1/nodeaffinity/nodeaffinity.go;
k8s.io/apimachinery v0.37.1, pkg/labels/selector.go.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from kube.api.meta import ApiStruct

_NAME_FIELD: Final = "metadata.name"
_KEY: Final = re.compile(r"(?:(?P<prefix>[^/]*)/)?(?P<name>[^/]*)", re.DOTALL)
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_SUBDOMAIN: Final = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*"
)
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")


class NodeSelectorRequirement(ApiStruct, frozen=True, kw_only=True):
    """Source: core/v1 NodeSelectorRequirement."""

    key: str
    operator: str
    values: tuple[str, ...] | None = None


class NodeSelectorTerm(ApiStruct, frozen=True, kw_only=True):
    """Source: core/v1 NodeSelectorTerm."""

    match_expressions: tuple[NodeSelectorRequirement, ...] | None = None
    match_fields: tuple[NodeSelectorRequirement, ...] | None = None


class NodeSelector(ApiStruct, frozen=True, kw_only=True):
    """Source: core/v1 NodeSelector."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


def validate(selector: NodeSelector) -> None:
    """Validate a selector before `matches` evaluates it.

    Raises:
        ValueError: A requirement of any term is invalid; the message names it.
    """
    for index, term in enumerate(selector.node_selector_terms):
        for list_name, errors in (
            ("matchExpressions", _expression_errors(term)),
            ("matchFields", _field_errors(term)),
        ):
            for error in errors:
                raise ValueError(f"nodeSelectorTerms[{index}].{list_name}: {error}")


def matches(selector: NodeSelector, node: str, labels: Mapping[str, str]) -> bool:
    """Return True if a valid selector matches a node: terms are ORed, requirements ANDed.

    An empty term matches no node, and neither does a selector without terms.

    Args:
        selector: A selector that `validate` accepts.
        node: The node's name, which is the only field that a requirement can name.
        labels: The node's labels.
    """
    return any(_term_matches(term, node, labels) for term in selector.node_selector_terms)


def _term_matches(term: NodeSelectorTerm, node: str, labels: Mapping[str, str]) -> bool:
    if not (term.match_expressions or term.match_fields):
        return False
    return all(
        _label_matches(requirement, labels.get(requirement.key))
        for requirement in term.match_expressions or ()
    ) and all(_field_matches(requirement, node) for requirement in term.match_fields or ())


def _label_matches(requirement: NodeSelectorRequirement, label: str | None) -> bool:
    values = requirement.values or ()
    match requirement.operator:
        case "In":
            return label in values
        case "NotIn":
            return label not in values
        case "Exists":
            return label is not None
        case "DoesNotExist":
            return label is None
        case "Gt" | "Lt":
            value, bound = _parse_integer(label or ""), _parse_integer(values[0])
            if value is None or bound is None:
                return False
            return value > bound if requirement.operator == "Gt" else value < bound
        case _:
            raise ValueError(f"operator {requirement.operator!r}")


def _field_matches(requirement: NodeSelectorRequirement, node: str) -> bool:
    # As upstream, an unknown field is empty.
    value = node if requirement.key == _NAME_FIELD else ""
    return (value in (requirement.values or ())) == (requirement.operator == "In")


def _expression_errors(term: NodeSelectorTerm) -> Iterator[str]:
    for index, requirement in enumerate(term.match_expressions or ()):
        if not _is_label_key(requirement.key):
            yield f"[{index}]: {requirement.key!r} is not a label key"
        if error := _operator_error(requirement.operator, requirement.values or ()):
            yield f"[{index}]: {requirement.operator!r} {error}"
        for value in requirement.values or ():
            if value and not _NAME.fullmatch(value):
                yield f"[{index}]: {value!r} is not a label value"


def _operator_error(operator: str, values: tuple[str, ...]) -> str:
    """Return the error in an operator and its values; empty if there is none."""
    match operator:
        case "In" | "NotIn":
            return "" if values else "needs values"
        case "Exists" | "DoesNotExist":
            return "takes no values" if values else ""
        case "Gt" | "Lt":
            return (
                ""
                if len(values) == 1 and _parse_integer(values[0]) is not None
                else "needs one integer"
            )
        case _:
            return "is not an operator"


def _field_errors(term: NodeSelectorTerm) -> Iterator[str]:
    for index, requirement in enumerate(term.match_fields or ()):
        if requirement.operator not in {"In", "NotIn"}:
            yield f"[{index}]: {requirement.operator!r} is not an operator for fields"
        elif len(requirement.values or ()) != 1:
            yield f"[{index}]: {requirement.operator!r} needs one value"


def _is_label_key(key: str) -> bool:
    parts = _KEY.fullmatch(key)
    if parts is None or not _NAME.fullmatch(parts["name"]):
        return False
    return parts["prefix"] is None or _SUBDOMAIN.fullmatch(parts["prefix"]) is not None


def _parse_integer(text: str) -> int | None:
    """Parse a 64-bit decimal integer; None for any other text."""
    if not _INTEGER.fullmatch(text) or len(text) > 64:
        return None
    value = int(text)
    return value if -(2**63) <= value < 2**63 else None
