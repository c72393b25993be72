"""Requests of claims as text, short enough for a line or two."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from findings.text import count_text
from kube.cel.quoting import quote
from translation.compiling.claims import Claim
from translation.compiling.conditions import Condition, Relation

Spec = Mapping[str, Any]
Conditions = Mapping[str, tuple[Condition, ...]]
"""The CEL expression of a selector to the conditions of which it requires one, as in `Claim`."""
Amount = tuple[str, str]
"""The name of a capacity, and the quantity of it that is requested."""

_FORMS: Final[Mapping[tuple[Relation, bool], str]] = {
    (Relation.PRESENT, True): "it has no {name}",
    (Relation.EQUAL, False): "{name} is {values}",
    (Relation.CONTAINS, False): "{name} contains {values}",
    (Relation.CONTAINS, True): "{name} does not contain {values}",
    (Relation.ONE_OF, False): "{name} is {values}",
    (Relation.ONE_OF, True): "{name} is not {values}",
    (Relation.SAME_AMOUNT, False): "{name} is {values}",
    (Relation.AT_LEAST, False): "{name} is at least {values}",
}
"""Relation, and whether it is negated, to its words. Other conditions are shown in CEL."""


def selector_text(conditions: Sequence[Condition]) -> str:
    """Return a selector as text: it requires one of the conditions."""
    return " or ".join(map(_condition, conditions))


def _condition(condition: Condition) -> str:
    form = _FORMS.get((condition.relation, condition.negated))
    if form is None:
        return condition.expression
    return form.format(name=condition.name, values=" or ".join(map(_value, condition.values)))


def _value(value: object) -> str:
    # What users write is escaped, as in the selector.
    if isinstance(value, str):
        return quote(value)[1:-1]
    return str(value).lower() if isinstance(value, bool) else str(value)


def requests(claim: Claim) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each request of a claim."""
    devices = claim.spec["spec"]["devices"]
    for request in devices["requests"]:
        name = request["name"]
        alternatives = request.get("firstAvailable") or [request["exactly"]]
        further = [
            *_constraints(name, devices.get("constraints") or ()),
            *_configurations(name, devices.get("config") or ()),
        ]
        yield name, "; ".join((_alternatives(alternatives, claim.conditions), *further))


def _alternatives(requests: Sequence[Spec], conditions: Conditions) -> str:
    """Return the common part of a request's alternatives, then their differences."""
    selectors = [_selectors(alternative, conditions) for alternative in requests]
    amounts = [_amounts(alternative) for alternative in requests]
    shared_selectors = [part for part in selectors[0] if all(part in own for own in selectors)]
    shared_amounts = [part for part in amounts[0] if all(part in own for own in amounts)]
    count = requests[0].get("count", 1)
    words = [f"{_number(requests[0])} of class {requests[0]['deviceClassName']}"]
    if shared_selectors:
        words.append(f"where {' and '.join(map(selector_text, shared_selectors))}")
    if shared_amounts:
        prefix = "each " if count > 1 else ""
        words.append(f"{prefix}with {', '.join(map(_amount_text, shared_amounts))}")
    if len(requests) == 1:
        return ", ".join(words)
    differences = [
        _difference(
            [part for part in own_selectors if part not in shared_selectors],
            [part for part in own_amounts if part not in shared_amounts],
        )
        for own_selectors, own_amounts in zip(selectors, amounts, strict=True)
    ]
    # Alternatives may differ only in the constraint that names them, which follows the request.
    different = list(dict.fromkeys(differences))
    if len(different) == 1:
        return ", ".join(words)
    return f"{', '.join(words)}; the first that fits: {', or '.join(different)}"


def _difference(selectors: Sequence[tuple[Condition, ...]], amounts: Sequence[Amount]) -> str:
    """Return the part that only one alternative has, such as `memory 20Gi of a 40Gi device`."""
    match selectors, amounts:
        case (
            [(Condition(relation=Relation.SAME_AMOUNT, name=name, values=(total,)),)],
            [(amount_name, _) as amount],
        ) if name == amount_name:
            article = "an" if str(total).startswith(("8", "11", "18")) else "a"
            return f"{_amount_text(amount)} of {article} {total} device"
    parts = (" and ".join(map(selector_text, selectors)), ", ".join(map(_amount_text, amounts)))
    return " with ".join(filter(None, parts))


def _number(request: Spec) -> str:
    if request.get("allocationMode") == "All":
        return "all devices of a node"
    count = request.get("count", 1)
    return count_text(count, "device")


def _selectors(request: Spec, conditions: Conditions) -> list[tuple[Condition, ...]]:
    return [
        conditions[selector["cel"]["expression"]] for selector in request.get("selectors") or ()
    ]


def _amounts(request: Spec) -> list[Amount]:
    return sorted(((request.get("capacity") or {}).get("requests") or {}).items())


def _amount_text(amount: Amount) -> str:
    # 0 is an amount as well: it reserves nothing, and so limits nothing.
    name, quantity = amount
    return f"{name} {quantity}{' (none reserved)' if quantity == '0' else ''}"


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
