"""What a ResourceClaim, or a template of them, cannot mean: requests, constraints, tolerations.

Source: k8s.io/kubernetes v1.37.1, pkg/apis/resource/validation, for what the API server refuses
(users without a cluster meet it here), and its gaps: what it accepts and the allocator trips over.
"""

import difflib
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from kube.api.resource import (
    MAX_ALTERNATIVES,
    MAX_REQUESTS,
    MAX_RESULTS,
    DeviceClaim,
    DeviceRequest,
    DeviceSubRequest,
    DeviceToleration,
    ExactDeviceRequest,
)
from kube.quantity import Quantity
from webhook.findings import Code, Finding, error, shown, warning
from webhook.rules.asked import asked, at, named, names_of
from webhook.rules.context import Context
from webhook.rules.rule import BUILT_IN, ClaimRule, Class, InServer, Part, Subject

MAX_TOLERATIONS: Final = 16
"""Of one request (DeviceTolerationsMaxLength); documented, and checked by nobody."""
EXACT_COUNT: Final = "ExactCount"
ALL: Final = "All"
MAX_COMPARED: Final = 128
"""Names among which the nearest is looked for."""
MAX_LISTED: Final = 8
"""Names in one advice."""
_MODES: Final = ("", EXACT_COUNT, ALL)
_OPERATORS: Final = ("", "Equal", "Exists")
_EFFECTS: Final = ("", "NoSchedule", "NoExecute", "None")

Claim = Subject[DeviceClaim]
Asking = ExactDeviceRequest | DeviceSubRequest


def every_asked(holds: str) -> str:
    """Return CEL: something holds for every way to ask, which it calls `ask`."""
    exactly = f"[r.exactly].all(ask, {holds})"
    return (
        f"variables.requests.all(r, (!has(r.exactly) || {exactly})\n"
        f"&& (!has(r.firstAvailable) || r.firstAvailable.all(ask, {holds})))"
    )


# --- requests -------------------------------------------------------------------------------------


def shape(claim: Claim, path: str, _context: Context) -> Iterator[Finding]:
    """Yield requests that say neither or both of `exactly` and `firstAvailable`, or no class."""
    if not claim.view.requests and (claim.view.constraints or claim.view.config):
        yield error(
            Code.REQUEST_SHAPE,
            at(path, "requests"),
            "there are constraints or configurations and no requests for them",
            "add a request",
        )
    for index, request in enumerate(claim.view.requests or ()):
        place = at(path, f"requests[{index}]")
        both = request.exactly is not None and request.first_available is not None
        if both or (request.exactly is None and not request.first_available):
            found = "both" if both else "neither"
            yield error(
                Code.REQUEST_SHAPE,
                place,
                f"exactly one of exactly and firstAvailable must be set, found {found}",
                "" if both else "put deviceClassName, selectors and count below exactly",
            )
    for one in asked(claim.view):
        if not one.request.device_class_name:
            yield error(
                Code.REQUEST_SHAPE,
                at(path, one.path, "deviceClassName"),
                "a request needs a class",
                "name a DeviceClass",
            )


def names(claim: Claim, path: str, _context: Context) -> Iterator[Finding]:
    """Yield names of requests and alternatives that stand twice."""
    requests = claim.view.requests or ()
    yield from twice((one.name for one in requests), at(path, "requests"))
    for index, request in enumerate(requests):
        place = at(path, f"requests[{index}].firstAvailable")
        yield from twice((one.name for one in request.first_available or ()), place)


def twice(found: Iterable[str], path: str) -> Iterator[Finding]:
    """Yield a finding per name that was there before."""
    seen: Counter[str] = Counter()
    for index, name in enumerate(found):
        seen[name] += 1
        if seen[name] == 2:
            yield error(
                Code.DUPLICATE_NAME,
                f"{path}[{index}].name",
                f"{shown(name)} stands twice",
                "give each a name of its own",
            )


def counts(claim: Claim, path: str, _context: Context) -> Iterator[Finding]:
    """Yield modes that do not exist, and counts that do not go with their mode."""
    for one in asked(claim.view):
        mode, count = one.request.allocation_mode, one.request.count
        place = at(path, one.path)
        if mode not in _MODES:
            yield error(
                Code.INVALID_COUNT,
                f"{place}.allocationMode",
                f"{shown(mode)} is no mode",
                f"write {EXACT_COUNT} or {ALL}",
            )
        elif mode == ALL and count:
            yield error(
                Code.INVALID_COUNT,
                f"{place}.count",
                f"a count of {count} stands beside allocationMode {ALL}",
                "leave one of them out",
            )
        elif mode != ALL and count is not None and count < 0:
            yield error(
                Code.INVALID_COUNT,
                f"{place}.count",
                f"must not be below zero, found {count}",
                "leave it out for one device",
            )


def too_many_requests(claim: Claim, path: str, _context: Context) -> Iterator[Finding]:
    """Yield lists of requests and alternatives that are too long."""
    requests = claim.view.requests or ()
    if len(requests) > MAX_REQUESTS:
        yield error(
            Code.TOO_MANY_REQUESTS,
            at(path, "requests"),
            f"a claim holds at most {MAX_REQUESTS} requests, found more",
            "make two claims",
        )
    for index, request in enumerate(requests):
        alternatives = request.first_available or ()
        if len(alternatives) > MAX_ALTERNATIVES:
            yield error(
                Code.TOO_MANY_REQUESTS,
                at(path, f"requests[{index}].firstAvailable"),
                f"a request has at most {MAX_ALTERNATIVES} alternatives, found more",
            )


def too_many_devices(claim: Claim, path: str, _context: Context) -> Iterator[Finding]:
    """Yield a claim whose smallest alternatives together need more devices than one holds."""
    least = sum(map(_least, claim.view.requests or ()))
    if least > MAX_RESULTS:
        yield error(
            Code.TOO_MANY_DEVICES,
            at(path, "requests"),
            f"{least} devices are asked for, and a claim holds at most {MAX_RESULTS}",
            "make several claims",
        )


def _least(request: DeviceRequest) -> int:
    if request.exactly is not None:
        return _devices(request.exactly)
    return min(map(_devices, request.first_available or ()), default=0)


def _devices(one: Asking) -> int:
    """Return how many devices it needs at least; mode All is content with one."""
    if one.allocation_mode == ALL:
        return 1
    # The API server makes one of none.
    return max(1, one.count or 0)


_COUNT: Final = '(has(ask.allocationMode) && ask.allocationMode == "All") ? 1 : ask.count'
_LEAST: Final = (
    f"has(r.exactly) ? [r.exactly].map(ask, {_COUNT})[0]\n"
    f": (has(r.firstAvailable) ? r.firstAvailable.map(ask, {_COUNT}).min() : 0)"
)

# --- what refers to requests ----------------------------------------------------------------------


def references(claim: Claim, path: str, _context: Context) -> Iterator[Finding]:
    """Yield names in constraints and configurations that no request has."""
    there = dict.fromkeys(names_of(claim.view))
    lists = [(f"constraints[{i}]", c.requests) for i, c in enumerate(claim.view.constraints or ())]
    lists += [(f"config[{i}]", c.requests) for i, c in enumerate(claim.view.config or ())]
    for place, wanted in lists:
        for number, name in enumerate(wanted or ()):
            if name not in there:
                yield error(
                    Code.UNKNOWN_REQUEST,
                    at(path, f"{place}.requests[{number}]"),
                    f"{shown(name)} is no request of this claim",
                    nearest(name, there),
                )


def nearest(name: str, names: Iterable[str]) -> str:
    """Return advice to write a name that is known.

    >>> nearest("gup", ["gpu", "nic"])
    'write "gpu"'
    >>> nearest("x", ["gpu", "nic"])
    'known are "gpu", "nic"'
    """
    by_word = {one.lower(): one for one in islice(names, MAX_COMPARED)}
    close = difflib.get_close_matches(name.lower(), by_word, n=1)
    return f"write {shown(by_word[close[0]])}" if close else known(by_word.values())


def known(names: Iterable[str]) -> str:
    """Return advice that lists what is there, or its beginning."""
    listed = [shown(one) for one in names]
    if len(listed) > MAX_LISTED:
        listed = [*listed[:MAX_LISTED], "..."]
    return f"known are {', '.join(listed)}" if listed else ""


def constraints(claim: Claim, path: str, _context: Context) -> Iterator[Finding]:
    """Yield constraints without an attribute, or with one that has no domain."""
    for index, one in enumerate(claim.view.constraints or ()):
        place = at(path, f"constraints[{index}]")
        if not one.match_attribute and not one.distinct_attribute:
            yield error(
                Code.INVALID_CONSTRAINT,
                place,
                "a constraint needs matchAttribute or distinctAttribute",
                "name an attribute with its domain, such as resource.kubernetes.io/pcieRoot",
            )
        for field, name in (
            ("matchAttribute", one.match_attribute),
            ("distinctAttribute", one.distinct_attribute),
        ):
            if name and "/" not in name:
                yield error(
                    Code.INVALID_CONSTRAINT,
                    f"{place}.{field}",
                    f"{shown(name)} has no domain",
                    "write the driver's name and a slash before it",
                )


def both_attributes(claim: Claim, path: str, _context: Context) -> Iterator[Finding]:
    """Yield constraints of which one half would be ignored."""
    for index, one in enumerate(claim.view.constraints or ()):
        if one.match_attribute and one.distinct_attribute:
            yield error(
                Code.BOTH_ATTRIBUTES,
                at(path, f"constraints[{index}]"),
                "matchAttribute and distinctAttribute stand together, and the scheduler ignores"
                f" distinctAttribute {shown(one.distinct_attribute)}",
                "make two constraints",
            )


def lonely(claim: Claim, path: str, _context: Context) -> Iterator[Finding]:
    """Yield constraints that only one device is subject to, so that nothing is compared."""
    for index, one in enumerate(claim.view.constraints or ()):
        ways = named(claim.view, one.requests)
        if len(ways) == 1 and ways[0].is_only and _is_single(ways[0].request):
            yield warning(
                Code.LONELY_CONSTRAINT,
                at(path, f"constraints[{index}]"),
                f"only request {shown(ways[0].name)} is subject to it, which gets one device",
                "name every request that it is about, or leave requests out for all of them",
            )


def _is_single(one: Asking) -> bool:
    return one.allocation_mode != ALL and (one.count or 1) == 1


_SUBJECT: Final = (
    "(!has(c.requests) || c.requests.size() == 0 || r.name in c.requests\n"
    '|| c.requests.exists(name, name.startsWith(r.name + "/")))'
)
_SINGLE: Final = (
    'has(r.exactly) && (!has(r.exactly.allocationMode) || r.exactly.allocationMode != "All")\n'
    "&& r.exactly.count == 1"
)

# --- tolerations ----------------------------------------------------------------------------------


def tolerations(claim: Claim, path: str, _context: Context) -> Iterator[Finding]:
    """Yield tolerations with words that do not exist, or a value beside Exists."""
    for place, one in _tolerations(claim, path):
        if one.operator not in _OPERATORS:
            yield error(
                Code.INVALID_TOLERATION,
                f"{place}.operator",
                f"{shown(one.operator)} is no operator",
                "write Equal or Exists",
            )
        if one.operator == "Exists" and one.value:
            yield error(
                Code.INVALID_TOLERATION,
                f"{place}.value",
                "a value means nothing beside operator Exists",
                "leave it out, or write operator Equal",
            )
        if one.effect not in _EFFECTS:
            yield error(
                Code.INVALID_TOLERATION,
                f"{place}.effect",
                f"{shown(one.effect)} is no effect of device taints",
                "write NoSchedule, NoExecute or nothing for both",
            )


def keyless_tolerations(claim: Claim, path: str, _context: Context) -> Iterator[Finding]:
    """Yield tolerations of operator Equal without a key, which match any key of one value.

    Drivers' own examples have them, written as if they tolerated everything, so it is advice.
    """
    for place, one in _tolerations(claim, path):
        if not one.key and one.operator in {"", "Equal"}:
            yield warning(
                Code.KEYLESS_TOLERATION,
                f"{place}.key",
                f"operator Equal without a key tolerates only taints of value {shown(one.value)}",
                "name the key, or write operator Exists to tolerate everything",
            )


def too_many_tolerations(claim: Claim, path: str, _context: Context) -> Iterator[Finding]:
    """Yield lists of tolerations that are longer than the API says."""
    for one in asked(claim.view):
        found = len(one.request.tolerations or ())
        if found > MAX_TOLERATIONS:
            yield error(
                Code.TOO_MANY_TOLERATIONS,
                at(path, one.path, "tolerations"),
                f"{found} tolerations, and a request has at most {MAX_TOLERATIONS}",
                "tolerate keys with operator Exists",
            )


def idle_tolerations(claim: Claim, path: str, _context: Context) -> Iterator[Finding]:
    """Yield tolerations of effect None, which keeps nobody away."""
    for place, one in _tolerations(claim, path):
        if one.effect == "None":
            yield warning(
                Code.IDLE_TOLERATION,
                f"{place}.effect",
                "taints of effect None keep nobody away, so this tolerates nothing",
                "write NoSchedule or NoExecute, or leave the effect out",
            )


def _tolerations(claim: Claim, path: str) -> Iterator[tuple[str, DeviceToleration]]:
    for one in asked(claim.view):
        for index, toleration in enumerate(one.request.tolerations or ()):
            yield at(path, one.path, f"tolerations[{index}]"), toleration


def _every_toleration(holds: str) -> str:
    return every_asked(f"!has(ask.tolerations) || ask.tolerations.all(t, {holds})")


# --- capacity -------------------------------------------------------------------------------------


def negative_amounts(claim: Claim, path: str, _context: Context) -> Iterator[Finding]:
    """Yield amounts below zero: the scheduler gives up on every node, but where a range has a minimum."""
    for place, _, amount in amounts(claim, path):
        if amount < Quantity(0):
            yield error(
                Code.NEGATIVE_CAPACITY,
                place,
                f"{amount} is below zero, which ends the attempt unless a device's range raises it",
                "ask for an amount above zero",
            )


def slashes(claim: Claim, path: str, _context: Context) -> Iterator[Finding]:
    """Yield names of capacities and attributes with more than one slash."""
    found = [(place, key) for place, key, _ in amounts(claim, path)]
    for index, one in enumerate(claim.view.constraints or ()):
        place = at(path, f"constraints[{index}]")
        found.append((f"{place}.matchAttribute", one.match_attribute or ""))
        found.append((f"{place}.distinctAttribute", one.distinct_attribute or ""))
    yield from several_slashes(found)


def several_slashes(found: Iterable[tuple[str, str]]) -> Iterator[Finding]:
    """Yield a finding per name, by its path, that no selector can reach."""
    for place, name in found:
        if name.count("/") > 1:
            domain, _, rest = name.partition("/")
            yield error(
                Code.SEVERAL_SLASHES,
                place,
                f"{shown(name)} has several slashes; selectors take {shown(domain)} for the domain"
                f" and {shown(rest)} for the identifier",
                "write one domain, one slash and a C identifier",
            )


def amounts(claim: Claim, path: str) -> Iterator[tuple[str, str, Quantity]]:
    """Yield path, key and amount of every capacity that is asked for."""
    for one in asked(claim.view):
        capacity = one.request.capacity
        for key, amount in sorted(((capacity and capacity.requests) or {}).items()):
            yield at(path, one.path, f"capacity.requests[{key}]"), key, amount


def every_amount(holds: str) -> str:
    """Return CEL: something holds for every `key` of `ask.capacity.requests`."""
    return every_asked(
        "!has(ask.capacity) || !has(ask.capacity.requests)\n"
        f"|| ask.capacity.requests.all(key, {holds})"
    )


# --- where the claim is ---------------------------------------------------------------------------


def admin_access(claim: Claim, path: str, context: Context) -> Iterator[Finding]:
    """Yield administrative access in a namespace that is known not to allow it."""
    labels = context.namespaces.get(claim.namespace)
    if labels is None or labels.get(ADMIN_LABEL) == "true":
        return
    for index, request in enumerate(claim.view.requests or ()):
        if request.exactly is not None and request.exactly.admin_access:
            yield error(
                Code.ADMIN_ACCESS,
                at(path, f"requests[{index}].adminAccess"),
                f"namespace {claim.namespace} is not labelled for administrative access",
                f'label it {ADMIN_LABEL}: "true"',
            )


ADMIN_LABEL: Final = "resource.kubernetes.io/admin-access"

RULES: Final[tuple[ClaimRule, ...]] = (
    ClaimRule(
        code=Code.REQUEST_SHAPE,
        part=Part.CLAIM,
        rank=Class.WRONG,
        judge=shape,
        cure="Say `exactly` for one way to ask, or `firstAvailable` for several; each names a class.",
        why_not_cel=BUILT_IN,
    ),
    ClaimRule(
        code=Code.DUPLICATE_NAME,
        part=Part.CLAIM,
        rank=Class.WRONG,
        judge=names,
        cure="Give each entry a name of its own.",
        why_not_cel=BUILT_IN,
    ),
    ClaimRule(
        code=Code.INVALID_COUNT,
        part=Part.CLAIM,
        rank=Class.WRONG,
        judge=counts,
        cure="`ExactCount` with a count, or `All` without one.",
        why_not_cel=BUILT_IN,
    ),
    ClaimRule(
        code=Code.TOO_MANY_REQUESTS,
        part=Part.CLAIM,
        rank=Class.WRONG,
        judge=too_many_requests,
        cure="Make several claims.",
        why_not_cel=BUILT_IN,
    ),
    ClaimRule(
        code=Code.TOO_MANY_DEVICES,
        part=Part.CLAIM,
        rank=Class.WRONG,
        judge=too_many_devices,
        cure="Make several claims; devices that must be aligned stay in one.",
        cel=InServer(
            expression=f"variables.requests.map(r, {_LEAST}).sum() <= {MAX_RESULTS}",
            message=f"more than {MAX_RESULTS} devices are asked for; make several claims",
        ),
    ),
    ClaimRule(
        code=Code.UNKNOWN_REQUEST,
        part=Part.CLAIM,
        rank=Class.WRONG,
        judge=references,
        cure="Name a request of the claim, or `request/alternative`.",
        why_not_cel=BUILT_IN,
    ),
    ClaimRule(
        code=Code.INVALID_CONSTRAINT,
        part=Part.CLAIM,
        rank=Class.WRONG,
        judge=constraints,
        cure="Name one attribute with its domain.",
        why_not_cel=BUILT_IN,
    ),
    ClaimRule(
        code=Code.BOTH_ATTRIBUTES,
        part=Part.CLAIM,
        rank=Class.WRONG,
        judge=both_attributes,
        cure="Make two constraints.",
        cel=InServer(
            expression="!has(variables.devices.constraints) || variables.devices.constraints.all(c,"
            "\n!has(c.matchAttribute) || !has(c.distinctAttribute))",
            message="matchAttribute and distinctAttribute stand together, and distinctAttribute"
            " would be ignored; make two constraints",
        ),
    ),
    ClaimRule(
        code=Code.LONELY_CONSTRAINT,
        part=Part.CLAIM,
        rank=Class.ADVICE,
        judge=lonely,
        cure="Name every request that the constraint is about, or leave `requests` out.",
        cel=InServer(
            expression="!has(variables.devices.constraints) || variables.devices.constraints.all(c,"
            f"\nvariables.requests.filter(r, {_SUBJECT}).map(r, {_SINGLE} ? 1 : 2).sum() != 1)",
            message="a constraint is about one device, which always agrees with itself",
        ),
    ),
    ClaimRule(
        code=Code.INVALID_TOLERATION,
        part=Part.CLAIM,
        rank=Class.WRONG,
        judge=tolerations,
        cure="Operators are `Equal` and `Exists`, effects `NoSchedule` and `NoExecute`.",
        why_not_cel=BUILT_IN,
    ),
    ClaimRule(
        code=Code.KEYLESS_TOLERATION,
        part=Part.CLAIM,
        rank=Class.ADVICE,
        judge=keyless_tolerations,
        cure="Name the key, or write operator `Exists` to tolerate everything.",
        cel=InServer(
            expression=_every_toleration(
                '(has(t.key) && t.key != "") || (has(t.operator) && t.operator == "Exists")'
            ),
            message="a toleration of operator Equal has no key; name the key, or write operator"
            " Exists to tolerate everything",
        ),
    ),
    ClaimRule(
        code=Code.TOO_MANY_TOLERATIONS,
        part=Part.CLAIM,
        rank=Class.WRONG,
        judge=too_many_tolerations,
        cure="Tolerate keys with operator `Exists` instead of each value.",
        cel=InServer(
            expression=every_asked(
                f"!has(ask.tolerations) || ask.tolerations.size() <= {MAX_TOLERATIONS}"
            ),
            message=f"a request has at most {MAX_TOLERATIONS} tolerations",
        ),
    ),
    ClaimRule(
        code=Code.IDLE_TOLERATION,
        part=Part.CLAIM,
        rank=Class.ADVICE,
        judge=idle_tolerations,
        cure="Tolerate `NoSchedule` or `NoExecute`, or leave the effect out for both.",
        cel=InServer(
            expression=_every_toleration('!has(t.effect) || t.effect != "None"'),
            message="taints of effect None keep nobody away, so a toleration of them does nothing",
        ),
    ),
    ClaimRule(
        code=Code.NEGATIVE_CAPACITY,
        part=Part.CLAIM,
        rank=Class.WRONG,
        judge=negative_amounts,
        cure="Ask for an amount above zero, or leave the capacity out.",
        cel=InServer(
            expression=every_amount('!ask.capacity.requests[key].startsWith("-")'),
            message="an amount in capacity.requests is below zero",
        ),
    ),
    ClaimRule(
        code=Code.SEVERAL_SLASHES,
        part=Part.CLAIM,
        rank=Class.WRONG,
        judge=slashes,
        cure="Write one domain, one slash and a C identifier.",
        cel=InServer(
            expression=every_amount('key.split("/").size() <= 2')
            + "\n&& (!has(variables.devices.constraints) || variables.devices.constraints.all(c,"
            '\n(!has(c.matchAttribute) || c.matchAttribute.split("/").size() <= 2)'
            '\n&& (!has(c.distinctAttribute) || c.distinctAttribute.split("/").size() <= 2)))',
            message="the name of an attribute or capacity has several slashes",
        ),
    ),
    ClaimRule(
        code=Code.ADMIN_ACCESS,
        part=Part.CLAIM,
        rank=Class.WRONG,
        judge=admin_access,
        cure=f'Label the namespace `{ADMIN_LABEL}: "true"`.',
        why_not_cel=BUILT_IN,
    ),
)
