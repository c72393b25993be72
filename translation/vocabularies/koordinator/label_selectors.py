"""Label selectors of Koordinator's device hints, as requirements on labels of devices.

Source: koordinator-sh/koordinator, apis/extension/device_share.go, DeviceHint; apimachinery v0.34,
pkg/apis/meta/v1, LabelSelectorAsSelector.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from findings.finding import Code, Finding, error
from findings.text import quote_text
from translation.model.intents import LabelRequirement, annotation_path
from translation.vocabularies.koordinator.keys import HINT

MAX_REQUIREMENTS: Final = 8
"""The requirements of one label selector; each becomes a selector of a request, which has at most 32."""

MAX_KEY: Final = 317
"""The characters of a label's key: a domain, a slash and a name. Source: apimachinery, IsQualifiedName."""


class _Expression(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    operator: str
    values: tuple[str, ...] | None = None


class _LabelSelector(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    match_labels: Mapping[str, str] | None = None
    match_expressions: tuple[_Expression, ...] | None = None


def read_requirements(
    name: str, selector: Mapping[str, Any] | None, findings: list[Finding]
) -> tuple[LabelRequirement, ...]:
    """Return the requirements of a label selector; none of one that is faulty, with findings.

    Args:
        name: The field of the hint.
    """
    if not selector:
        return ()
    try:
        decoded = msgspec.convert(selector, _LabelSelector)
        requirements = tuple(_requirements(decoded))
        _check_keys(requirements)
    except ValueError as fault:
        findings.append(_fault(name, f"is no label selector: {quote_text(str(fault))}"))
        return ()
    if len(requirements) > MAX_REQUIREMENTS:
        findings.append(
            _fault(
                name, f"has {len(requirements)} requirements, at most {MAX_REQUIREMENTS} are read"
            )
        )
        return ()
    return requirements


def _requirements(selector: _LabelSelector) -> Iterator[LabelRequirement]:
    """Yield each requirement.

    Raises:
        ValueError: An operator is unknown, or its values do not suit it.
    """
    for key, value in sorted((selector.match_labels or {}).items()):
        yield LabelRequirement(key=key, values=(value,))
    for expression in selector.match_expressions or ():
        values = expression.values or ()
        match expression.operator:
            case "In" | "NotIn" if values:
                negated = expression.operator == "NotIn"
                yield LabelRequirement(key=expression.key, values=values, negated=negated)
            case "Exists" | "DoesNotExist" if not values:
                negated = expression.operator == "DoesNotExist"
                yield LabelRequirement(key=expression.key, negated=negated)
            case "In" | "NotIn":
                raise ValueError(f"operator {expression.operator} without values")
            case "Exists" | "DoesNotExist":
                raise ValueError(f"operator {expression.operator} with values")
            case operator:
                raise ValueError(
                    f"operator {operator}; In, NotIn, Exists and DoesNotExist are known"
                )


def _check_keys(requirements: Iterable[LabelRequirement]) -> None:
    """Check the length of keys, since messages repeat them.

    Raises:
        ValueError: A key is longer than the keys of labels.
    """
    for requirement in requirements:
        if len(requirement.key) > MAX_KEY:
            raise ValueError(
                f"a key of {len(requirement.key)} characters, at most {MAX_KEY} are allowed"
            )


def _fault(name: str, message: str) -> Finding:
    return error(
        Code.MALFORMED_ANNOTATION,
        annotation_path(HINT),
        f"{name} {message}",
        "write matchLabels, or matchExpressions with key, operator and values",
    )
