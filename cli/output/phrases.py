"""Requests of claims as text, short enough for a line or two.

The CEL that a translation writes is put into words; any other expression is shown as it is.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from findings.text import count_text

Spec = Mapping[str, Any]

_LITERAL: Final = r'"(?:[^"\\]|\\.)*"'
_DOMAIN: Final = r'device\.(?:attributes|capacity)\["[^"]*"\]'
_PRESENT: Final = rf'"(?P<name>[^"]+)" in {_DOMAIN}'
_VALUE: Final = rf"{_DOMAIN}\.\w+"
_CONTAINS: Final = rf"{_VALUE}\.lowerAscii\(\)\.contains\({_LITERAL}\)"
_ANY: Final = rf"\(?(?P<tests>{_CONTAINS}(?: \|\| {_CONTAINS})*)\)?"
_IS: Final = rf"{_VALUE} == (?P<list>{_LITERAL})"
_IS_PLAIN: Final = rf"{_VALUE} == (?P<amount>true|false|\d+)"
_IN: Final = rf"{_VALUE} in \[(?P<list>{_LITERAL}(?:, {_LITERAL})*)\]"
_AMOUNT: Final = rf'{_VALUE}\.compareTo\(quantity\("(?P<amount>[^"]*)"\)\)'

_FORMS: Final = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (rf"{_PRESENT} && {_IS}", "{name} is {items}"),
        (rf"{_PRESENT} && {_IS_PLAIN}", "{name} is {amount}"),
        (rf"{_PRESENT} && {_ANY}", "{name} contains {items}"),
        (rf"!\({_PRESENT} && {_ANY}\)", "{name} does not contain {items}"),
        (rf"{_PRESENT} && {_IN}", "{name} is {items}"),
        (rf"!\({_PRESENT} && {_IN}\)", "{name} is not {items}"),
        (rf"{_PRESENT} && {_AMOUNT} == 0", "{name} is {amount}"),
        (rf"{_PRESENT} && {_AMOUNT} >= 0", "{name} is at least {amount}"),
        (rf"!\({_PRESENT}\)", "it has no {name}"),
    )
)
_EITHER: Final = re.compile(r"\(([^()]+)\) \|\| \(([^()]+)\)")
"""Two tests that a translation writes, neither with parentheses of its own."""


def condition(expression: str) -> str:
    """Return a selector as text, or the expression itself if it has another form.

    >>> condition('"profile" in device.attributes["a.b"] && device.attributes["a.b"].profile == "x"')
    'profile is x'
    >>> condition("device.driver == 'a.b'")
    "device.driver == 'a.b'"
    """
    either = _EITHER.fullmatch(expression)
    if either is not None:
        return " or ".join(map(condition, either.groups()))
    for pattern, words in _FORMS:
        match = pattern.fullmatch(expression)
        if match is not None:
            return words.format(
                name=match["name"].rpartition("/")[2],
                items=" or ".join(_items(match.groupdict())),
                amount=match.groupdict().get("amount"),
            )
    return expression


def _items(groups: Mapping[str, str | None]) -> list[str]:
    tests, literals = groups.get("tests"), groups.get("list")
    if tests:
        return [text[1:-1] for text in re.findall(rf"contains\(({_LITERAL})\)", tests)]
    return [text[1:-1] for text in re.findall(_LITERAL, literals or "")]


def requests(spec: Spec) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each request of a ResourceClaim's spec.

    Args:
        spec: A claim's spec, with `devices`.
    """
    devices = spec["devices"]
    for request in devices["requests"]:
        name = request["name"]
        devices_text = _alternatives(request.get("firstAvailable") or [request["exactly"]])
        further = [
            *_constraints(name, devices.get("constraints") or ()),
            *_configurations(name, devices.get("config") or ()),
        ]
        yield name, "; ".join((devices_text, *further))


def _alternatives(requests: Sequence[Spec]) -> str:
    """Return the common part of a request's alternatives, then their differences."""
    conditions = [_conditions(alternative) for alternative in requests]
    amounts = [_amounts(alternative) for alternative in requests]
    shared_conditions = [text for text in conditions[0] if all(text in own for own in conditions)]
    shared_amounts = [text for text in amounts[0] if all(text in own for own in amounts)]
    count = requests[0].get("count", 1)
    words = [f"{_number(requests[0])} of class {requests[0]['deviceClassName']}"]
    words += [f"where {' and '.join(shared_conditions)}"] if shared_conditions else []
    words += [f"{'each ' if count > 1 else ''}with {', '.join(shared_amounts)}"] * bool(
        shared_amounts
    )
    if len(requests) == 1:
        return ", ".join(words)
    own = [
        _alternative(
            [text for text in tests if text not in shared_conditions],
            [text for text in capacity if text not in shared_amounts],
        )
        for tests, capacity in zip(conditions, amounts, strict=True)
    ]
    # Alternatives may differ only in the constraint that names them, which follows the request.
    different = list(dict.fromkeys(own))
    if len(different) == 1:
        return ", ".join(words)
    return f"{', '.join(words)}; the first that fits: {', or '.join(different)}"


def _alternative(tests: Sequence[str], amounts: Sequence[str]) -> str:
    """Return the part that only one alternative has.

    >>> _alternative(["memory is 40Gi"], ["memory 20Gi"])
    'memory 20Gi of a 40Gi device'
    >>> _alternative(["profile is 1g.5gb"], ["memory 20Gi"])
    'profile is 1g.5gb with memory 20Gi'
    """
    if len(tests) == len(amounts) == 1:
        name, separator, total = tests[0].partition(" is ")
        if separator and amounts[0].startswith(f"{name} "):
            article = "an" if total.startswith(("8", "11", "18")) else "a"
            return f"{amounts[0]} of {article} {total} device"
    return " with ".join(filter(None, (" and ".join(tests), ", ".join(amounts))))


def _number(request: Spec) -> str:
    if request.get("allocationMode") == "All":
        return "all devices of a node"
    count = request.get("count", 1)
    return count_text(count, "device")


def _conditions(request: Spec) -> list[str]:
    return [condition(selector["cel"]["expression"]) for selector in request.get("selectors") or ()]


def _amounts(request: Spec) -> list[str]:
    amounts = (request.get("capacity") or {}).get("requests") or {}
    # 0 is an amount as well: it reserves nothing, and so limits nothing.
    return [
        f"{name} {amount}{' (none reserved)' if amount == '0' else ''}"
        for name, amount in sorted(amounts.items())
    ]


def _constraints(request: str, constraints: Sequence[Spec]) -> Iterator[str]:
    for constraint in constraints:
        request_names = constraint.get("requests") or (request,)
        # A request with alternatives stands for all of them, or "request/alternative" for one.
        parents = dict.fromkeys(name.partition("/")[0] for name in request_names)
        if request not in parents:
            continue
        others = " and ".join(name for name in parents if name != request)
        prefix = "if possible " if any("/" in name for name in request_names) else ""
        distinct, match = constraint.get("distinctAttribute"), constraint.get("matchAttribute")
        if distinct:
            beside = f", also from {others}" if others else ""
            yield f"{prefix}with different {distinct.rpartition('/')[2]}{beside}"
        if match:
            beside = f" as {others}" if others else ""
            yield f"{prefix}with the same {match.rpartition('/')[2]}{beside}"


def _configurations(request: str, configurations: Sequence[Spec]) -> Iterator[str]:
    for configuration in configurations:
        if request not in (configuration.get("requests") or (request,)):
            continue
        parameters = dict(configuration["opaque"]["parameters"])
        parameters.pop("apiVersion", None)
        kind = parameters.pop("kind", "configuration")
        yield f"{kind} {msgspec.json.encode(parameters).decode()}"
