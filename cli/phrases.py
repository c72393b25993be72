"""Claims in words: what a request asks for, short enough for a line or two.

The expressions that our own compiler writes have words; any other is shown as it is, so that
nothing is hidden.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

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
"""Two tests that our compiler writes, neither with parentheses of its own."""


def condition(expression: str) -> str:
    """Return a selector in words, or as it is where there are none.

    >>> condition('"profile" in device.attributes["a.b"] && device.attributes["a.b"].profile == "x"')
    'profile is x'
    >>> condition("device.driver == 'a.b'")
    "device.driver == 'a.b'"
    """
    either = _EITHER.fullmatch(expression)
    if either is not None:
        return " or ".join(map(condition, either.groups()))
    for pattern, words in _FORMS:
        found = pattern.fullmatch(expression)
        if found is not None:
            return words.format(
                name=found["name"].rpartition("/")[2],
                items=" or ".join(_items(found.groupdict())),
                amount=found.groupdict().get("amount"),
            )
    return expression


def _items(groups: Mapping[str, str | None]) -> list[str]:
    tests, literals = groups.get("tests"), groups.get("list")
    if tests:
        return [text[1:-1] for text in re.findall(rf"contains\(({_LITERAL})\)", tests)]
    return [text[1:-1] for text in re.findall(_LITERAL, literals or "")]


def requests(spec: Spec) -> Iterator[tuple[str, str]]:
    """Yield name and words of each request of a ResourceClaim's spec.

    Args:
        spec: With `devices`.
    """
    devices = spec["devices"]
    for request in devices["requests"]:
        name = request["name"]
        said = _alternatives(request.get("firstAvailable") or [request["exactly"]])
        beside = [
            *_constraints(name, devices.get("constraints") or ()),
            *_configurations(name, devices.get("config") or ()),
        ]
        yield name, "; ".join((said, *beside))


def _alternatives(asked: Sequence[Spec]) -> str:
    """Return what all alternatives have in common, then what each has of its own."""
    conditions = [_conditions(one) for one in asked]
    amounts = [_amounts(one) for one in asked]
    shared_conditions = [text for text in conditions[0] if all(text in one for one in conditions)]
    shared_amounts = [text for text in amounts[0] if all(text in one for one in amounts)]
    count = asked[0].get("count", 1)
    words = [f"{_number(asked[0])} of class {asked[0]['deviceClassName']}"]
    words += [f"where {' and '.join(shared_conditions)}"] if shared_conditions else []
    words += [f"{'each ' if count > 1 else ''}with {', '.join(shared_amounts)}"] * bool(
        shared_amounts
    )
    if len(asked) == 1:
        return ", ".join(words)
    own = [
        " with ".join(
            filter(
                None,
                (
                    " and ".join(text for text in one if text not in shared_conditions),
                    ", ".join(text for text in given if text not in shared_amounts),
                ),
            )
        )
        for one, given in zip(conditions, amounts, strict=True)
    ]
    # What differs only in which constraint names it is told behind the request.
    different = list(dict.fromkeys(own))
    if len(different) == 1:
        return ", ".join(words)
    return f"{', '.join(words)}; the first that fits of: {' | '.join(different)}"


def _number(asked: Spec) -> str:
    if asked.get("allocationMode") == "All":
        return "all devices of a node"
    count = asked.get("count", 1)
    return f"{count} device{'' if count == 1 else 's'}"


def _conditions(asked: Spec) -> list[str]:
    return [condition(each["cel"]["expression"]) for each in asked.get("selectors") or ()]


def _amounts(asked: Spec) -> list[str]:
    amounts = (asked.get("capacity") or {}).get("requests") or {}
    # Nought is an amount, too: it reserves nothing, and so caps nothing.
    return [
        f"{name} {amount}{' (none reserved)' if amount == '0' else ''}"
        for name, amount in sorted(amounts.items())
    ]


def _constraints(request: str, constraints: Sequence[Spec]) -> Iterator[str]:
    for constraint in constraints:
        named = constraint.get("requests") or (request,)
        # A request with alternatives stands for all of them, or "request/alternative" for one.
        parents = dict.fromkeys(name.partition("/")[0] for name in named)
        if request not in parents:
            continue
        others = " and ".join(name for name in parents if name != request)
        preferred = "if possible " if any("/" in name for name in named) else ""
        distinct, match = constraint.get("distinctAttribute"), constraint.get("matchAttribute")
        if distinct:
            beside = f", also than {others}" if others else ""
            yield f"{preferred}all of different {distinct.rpartition('/')[2]}{beside}"
        if match:
            beside = f" as {others}" if others else ""
            yield f"{preferred}all of the same {match.rpartition('/')[2]}{beside}"


def _configurations(request: str, configurations: Sequence[Spec]) -> Iterator[str]:
    for configuration in configurations:
        if request not in (configuration.get("requests") or (request,)):
            continue
        parameters = dict(configuration["opaque"]["parameters"])
        parameters.pop("apiVersion", None)
        kind = parameters.pop("kind", "configuration")
        yield f"{kind} {msgspec.json.encode(parameters).decode()}"
