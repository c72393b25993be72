"""Fixes of selectors that do not compile: spellings of other languages, and of the API itself."""

import re
from typing import Final

from rules.model.cel_spellings import cel_spellings

QUALIFIED: Final = re.compile(
    r"""device\s*\.\s*(?P<map>attributes|capacity)\s*\[\s*["']"""
    r"""(?P<domain>[^"'/]*)/(?P<name>[A-Za-z_]\w*)["']\s*\]"""
    r"""(?P<member>\s*\.(?:string|int|bool|version)\b(?!\s*\())?""",
    re.ASCII,
)
"""A qualified name where a domain is expected; no domain has a slash, so that map is empty."""
_TOP_LEVEL: Final = re.compile(r"(?<![\w.])(?:attributes|capacity|driver)\s*[\[.=!]")
COMPARED: Final = re.compile(r"found no matching overload for '_([<>]=?|[=!]=)_'.*Quantity")
"""The engine's fault for a comparison of quantities with an operator."""


def suggest_fix(expression: str, fault: str) -> str:
    """Return the fix of an expression that does not compile; empty if none is known."""
    if qualified_name := QUALIFIED.search(expression):
        return f"write {separate_name(qualified_name)}"
    if _TOP_LEVEL.search(expression) and "undeclared reference" in fault:
        return 'use device.attributes["domain"].name'
    if comparison := COMPARED.search(fault):
        return f'compare quantities with x.compareTo(quantity("1Gi")) {comparison[1]} 0'
    if "device.name" in expression or "device.pool" in expression:
        return "a selector can read driver, attributes, capacity and allowMultipleAllocations"
    if "Syntax error" in fault:
        return "; ".join(cel_spellings(expression))
    if "must evaluate to bool" in fault:
        return "compare the value, so that the expression returns a boolean"
    return ""


def with_separate_names(expression: str) -> str:
    """Return an expression with domain and name of each attribute separate; empty if they are."""
    text = QUALIFIED.sub(separate_name, expression)
    return text if text != expression else ""


def separate_name(qualified_name: re.Match[str]) -> str:
    """Return a qualified name with its domain and its name separate."""
    return f'device.{qualified_name["map"]}["{qualified_name["domain"]}"].{qualified_name["name"]}'
