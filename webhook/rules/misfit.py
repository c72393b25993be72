"""Why claims would fit no node of an emptied cluster, and which of their words are the reason.

Each request is asked about by itself, then each claim, then all claims of a pod together; the first
of these that cannot be met is told. What other rules tell is not told again: selectors that choose
no device, capacities that nobody publishes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from allocator.core import capacity
from allocator.core.capacity import Consumption
from allocator.core.inventory import chain
from allocator.core.model import NodeDevices, PublishedDevice, Request
from allocator.core.outcome import AttemptFailed, Refusal
from allocator.near import NearestMiss
from kube.api.resource import (
    MAX_RESULTS,
    DeviceClaim,
    DeviceConstraint,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from kube.quantity import Quantity
from webhook.findings import Code, shown
from webhook.rules.asked import at, characters
from webhook.rules.emptied import Claims, Emptied, signature
from webhook.rules.room import Fit

_QUOTE: Final = '"'
_ENDLESS: Final = Quantity("1000E")
MAX_REQUESTS: Final = 32
"""Requests of all claims that are asked about one by one."""


MAX_REWORDED: Final = 2 * 1024
"""Characters of selectors. Most of them are compiled again for each condition that is left out."""


class Misfit(msgspec.Struct, frozen=True, kw_only=True):
    """One reason why claims would fit no node even if nothing were allocated.

    Attributes:
        claim: Index of the claim that it is about; None where it is about several.
        path: Below the claim's `devices`; empty where it is about several claims.
        message: What is wrong, in short.
        details: What rules out the devices of nodes, aggregated.
        drivers: Whose devices it is about.
        classes: That it is about, by name.
        doubt: Why it may pass; empty where only the inventory can tell.
        nearest: The smallest change to all of the claims with which they would fit.
    """

    code: Code
    claim: int | None
    path: str
    message: str
    details: str = ""
    drivers: frozenset[str] = frozenset()
    classes: frozenset[str] = frozenset()
    doubt: str = ""
    nearest: NearestMiss | None = None


def is_rewordable(claims: Claims) -> bool:
    """Return whether there is time to look for the smallest change to claims that would fit."""
    return sum(characters(one.spec.devices) for one in claims) <= MAX_REWORDED


def misfits(emptied: Emptied, claims: Claims) -> tuple[Misfit, ...]:
    """Return why claims, solved together, would fit no node; nothing where they fit some.

    Nothing, too, where the attempt ends before it is known: other rules tell of that.
    """
    found = signature(claims)
    return emptied.kept(("misfits", found.hash), lambda: _misfits(emptied, claims), size=found.size)


def _misfits(emptied: Emptied, claims: Claims) -> tuple[Misfit, ...]:
    fit = emptied.fits(claims)
    if fit in {Fit.FITS, Fit.UNJUDGED}:
        return ()
    try:
        found = _Diagnosis(emptied, claims).misfits(fit)
    except AttemptFailed:
        # Less than all of it ends the attempt, so nothing is proved.
        return ()
    if not found or all(one.code is Code.NOT_JUDGED for one in found):
        return tuple(found)
    nearest = emptied.nearest(claims) if is_rewordable(claims) else None
    return tuple(replace(one, nearest=nearest) for one in found)


class _Way(NamedTuple):
    """One way to meet a request, as the only request of a claim.

    Attributes:
        claim: Index of its claim.
        path: Below `devices`.
    """

    claim: int
    path: str
    alone: ResourceClaim
    request: Request


class _Diagnosis:
    """Questions about parts of claims."""

    def __init__(self, emptied: Emptied, claims: Claims) -> None:
        self._emptied = emptied
        self._claims = claims

    def misfits(self, fit: Fit) -> list[Misfit]:
        """Return the reasons.

        Args:
            fit: Of all claims together.
        """
        found: list[Misfit] = []
        settled: set[int] = set()
        for ways in islice(self._requests(), MAX_REQUESTS):
            if all(self._emptied.fits((way.alone,)) is Fit.NOWHERE for way in ways):
                found += _alternatives([self._of_way(way) for way in ways])
                settled.add(ways[0].claim)
        for index, claim in enumerate(self._claims):
            if index not in settled and self._emptied.fits((claim,)) is Fit.NOWHERE:
                found.append(self._together((claim,), index))
                settled.add(index)
        if settled:
            return sorted(found, key=lambda one: one.claim or 0)
        if fit is Fit.NOWHERE:
            return [self._together(self._claims, None)]
        message = "whether it can ever fit was not found out within the budget"
        return [Misfit(code=Code.NOT_JUDGED, claim=None, path="", message=message)]

    # --- each request ----------------------------------------------------------------------------

    def _requests(self) -> Iterator[list[_Way]]:
        """Yield the ways to meet each request, in order."""
        for index, claim in enumerate(self._claims):
            for number, request in enumerate(claim.spec.devices.requests or ()):
                place = f"requests[{number}]"
                if request.first_available:
                    each = [
                        (f"{place}.firstAvailable[{place_of}]", _only(request, one))
                        for place_of, one in enumerate(request.first_available)
                    ]
                else:
                    each = [(f"{place}.exactly", request)]
                yield [self._way(index, path, _with(claim, one)) for path, one in each]

    def _way(self, claim: int, path: str, alone: ResourceClaim) -> _Way:
        return _Way(claim, path, alone, self._emptied.ask((alone,)).requests[0][0][0])

    def _of_way(self, way: _Way) -> Misfit | None:
        """Return why a request cannot be met; None where it asks for what nobody publishes."""
        suiting = self._suiting(way)
        devices = [one for each in suiting for one in each]
        if not devices or self._lacks_a_capacity(way, devices):
            return None
        return (
            self._of_amounts(way, devices)
            or self._of_count(way, devices)
            or self._of_use(way, devices)
        )

    def _suiting(self, way: _Way) -> list[list[PublishedDevice]]:
        """Return the devices that selectors choose, by node."""
        selectors = chain(way.request.expressions)
        return [
            [each for each in node.devices if selectors.verdict(each) is True]
            for node in self._nodes(way)
        ]

    def _nodes(self, way: _Way) -> tuple[NodeDevices, ...]:
        return self._emptied.examples(self._emptied.ask((way.alone,)))

    def _lacks_a_capacity(self, way: _Way, devices: Sequence[PublishedDevice]) -> bool:
        """Return whether some amount is of a capacity that none of the devices has."""
        names = {name for each in devices for name in each.device.capacity or ()}
        return not names.issuperset(way.request.capacity or ())

    # --- amounts ---------------------------------------------------------------------------------

    def _of_amounts(self, way: _Way, devices: Sequence[PublishedDevice]) -> Misfit | None:
        """Return which amount no device can give, or that none can give all; None where one can."""
        asked = way.request.capacity or {}
        for name, amount in sorted(asked.items()):
            having = [each for each in devices if name in (each.device.capacity or {})]
            if having and len(self._refusals({name: amount}, having)) == len(having):
                return self._of_amount(way, name, amount, having)
        if asked and len(self._refusals(asked, devices)) == len(devices):
            words = " and ".join(f"{name} {amount}" for name, amount in sorted(asked.items()))
            message = f"none of the {_devices(devices)} has {words} together"
            return self._misfit(
                way, Code.MORE_THAN_ANY_DEVICE, "capacity.requests", message, devices
            )
        return None

    def _of_amount(
        self,
        way: _Way,
        name: str,
        amount: Quantity,
        devices: Sequence[PublishedDevice],
    ) -> Misfit:
        path = f"capacity.requests[{name}]"
        most, of = self._largest(way, name, amount, devices)
        if amount > most:
            there = Quantity.from_nanos(most.nanos, amount.format)
            message = f"{name} {amount} is more than the {there} of the largest {of}"
            return self._misfit(way, Code.MORE_THAN_ANY_DEVICE, path, message, devices)
        rounded = self._rounded(name, amount, devices)
        becomes = f", which is rounded up to {rounded}," if rounded is not None else ""
        message = f"{name} {amount}{becomes} is outside the policy of every {_device(devices)}"
        return self._misfit(way, Code.OUTSIDE_REQUEST_POLICY, path, message, devices)

    def _largest(
        self, way: _Way, name: str, amount: Quantity, devices: Sequence[PublishedDevice]
    ) -> tuple[Quantity, str]:
        """Return the largest amount that there is, and of what: the class, if that is too small."""
        device_class = way.request.device_class.metadata.name
        stock = self._emptied.stock(device_class).values()
        of_class = max(each.capacity[name] for each in stock if name in each.capacity)
        if amount > of_class:
            return of_class, f"device of class {shown(device_class)}"
        found = (each.device.capacity or {} for each in devices)
        return max(each[name].value for each in found), _device(devices)

    def _refusals(
        self, asked: Mapping[str, Quantity], devices: Sequence[PublishedDevice]
    ) -> list[Refusal]:
        """Return what devices say to amounts that they cannot give."""
        answers = (
            capacity.consumption(asked, each.device, self._emptied.rules.features)
            for each in devices
        )
        return [one for one in answers if not isinstance(one, Consumption)]

    def _rounded(
        self, name: str, amount: Quantity, devices: Sequence[PublishedDevice]
    ) -> Quantity | None:
        """Return what policies make of an amount, if all make the same of it and it is another."""
        found = {self._raised(name, amount, each) for each in devices}
        return next(iter(found)) if len(found) == 1 and found != {amount} else None

    def _raised(self, name: str, amount: Quantity, published: PublishedDevice) -> Quantity | None:
        """Return what a device would take for an amount if it had no end."""
        found = (published.device.capacity or {})[name]
        policy, range_ = (
            found.request_policy,
            found.request_policy and found.request_policy.valid_range,
        )
        if policy is not None and range_ is not None:
            policy = replace(policy, valid_range=replace(range_, max=None))
        endless = replace(found, value=_ENDLESS, request_policy=policy)
        device = replace(published.device, capacity={name: endless})
        answer = capacity.consumption({name: amount}, device, self._emptied.rules.features)
        return answer.amounts[name] if isinstance(answer, Consumption) else None

    def _of_use(self, way: _Way, devices: Sequence[PublishedDevice]) -> Misfit:
        """Return that something else keeps all devices from use, such as the labels of nodes."""
        message = f"none of the {_devices(devices)} can be used"
        if way.request.all_devices:
            message = f"no node can give all of its {_devices(devices)}"
        found = self._misfit(way, Code.NEVER_USABLE, "", message, devices)
        return replace(found, doubt="it is not for want of devices")

    # --- counts ----------------------------------------------------------------------------------

    def _of_count(self, way: _Way, devices: Sequence[PublishedDevice]) -> Misfit | None:
        """Return that no node gives so many; None where one would be too many, too."""
        wanted = way.request.count
        if way.request.all_devices or wanted < 2:
            return None
        most = self._most(way.alone, min(wanted, MAX_RESULTS + 1))
        if not most:
            return None
        of = _device(devices) if most == 1 else _devices(devices)
        message = f"count {wanted} is more than the {most} {of} that a node can give"
        return self._misfit(way, Code.MORE_THAN_ANY_NODE, "count", message, devices)

    def _most(self, alone: ResourceClaim, wanted: int) -> int:
        """Return the largest count below what is wanted that fits; 0 for none."""
        least, most = 0, wanted
        while most - least > 1:
            middle = (least + most) // 2
            if self._emptied.fits((_counting(alone, middle),)) is Fit.FITS:
                least = middle
            else:
                most = middle
        return least

    def _misfit(
        self, way: _Way, code: Code, path: str, message: str, devices: Iterable[PublishedDevice]
    ) -> Misfit:
        classes = frozenset({way.request.device_class.metadata.name})
        return Misfit(
            code=code,
            claim=way.claim,
            path=at(way.path, path),
            message=message,
            details=self._emptied.why((way.alone,)),
            drivers=self._drivers((way,), devices),
            classes=classes,
        )

    def _drivers(self, ways: Iterable[_Way], devices: Iterable[PublishedDevice]) -> frozenset[str]:
        """Return whose devices could answer: those that do, and those that selectors name.

        Where selectors name no driver with slices, any could.
        """
        found = {each.id.driver for each in devices}
        known = self._emptied.drivers
        for way in ways:
            texts = [each.text for each in way.request.expressions]
            named = {one for one in known if any(one in text for text in texts)}
            found |= named or known
        return frozenset(found)

    # --- together --------------------------------------------------------------------------------

    def _together(self, claims: Claims, index: int | None) -> Misfit:
        """Return why claims cannot be met as a whole, though each request can be by itself."""
        ways = [
            way
            for each in _Diagnosis(self._emptied, claims)._requests()  # noqa: SLF001 - its own kind.
            for way in each
        ]
        path, code, words = self._reason(claims)
        devices = [one for way in ways for each in self._suiting(way) for one in each]
        return Misfit(
            code=code,
            claim=index,
            path=path if index is not None else "",
            message=words,
            details=self._emptied.why(claims),
            drivers=self._drivers(ways, devices),
            classes=frozenset(way.request.device_class.metadata.name for way in ways),
        )

    def _reason(self, claims: Claims) -> tuple[str, Code, str]:
        """Return where the contradiction is, and what kind it is of."""
        free = [_constrained(claim, ()) for claim in claims]
        if self._emptied.fits(free) is Fit.FITS:
            return *self._constraint(claims), "no node can ever meet the constraints"
        if self._emptied.fits_without_modes(claims):
            words = "no node can ever give devices whose modes go together"
            return "requests", Code.MODES_EXCLUDE, words
        words = "no node can ever give all that is asked for together"
        return "requests", Code.NEVER_TOGETHER, words

    def _constraint(self, claims: Claims) -> tuple[str, Code]:
        """Return the one constraint without which claims would fit, or all of them."""
        for number, claim in enumerate(claims):
            constraints = claim.spec.devices.constraints or ()
            for index in range(len(constraints)):
                fewer = (*constraints[:index], *constraints[index + 1 :])
                changed = [*claims[:number], _constrained(claim, fewer), *claims[number + 1 :]]
                if self._emptied.fits(changed) is Fit.FITS:
                    return f"constraints[{index}]", Code.CONSTRAINT_NEVER_MET
        return "constraints", Code.CONSTRAINT_NEVER_MET


# --- parts of claims ------------------------------------------------------------------------------


def _only(request: DeviceRequest, alternative: DeviceSubRequest) -> DeviceRequest:
    return replace(request, first_available=(alternative,))


def _with(claim: ResourceClaim, request: DeviceRequest) -> ResourceClaim:
    """Return a claim that asks for nothing else."""
    return replace(claim, spec=ResourceClaimSpec(devices=DeviceClaim(requests=(request,))))


def _constrained(claim: ResourceClaim, constraints: Sequence[DeviceConstraint]) -> ResourceClaim:
    devices = replace(claim.spec.devices, constraints=tuple(constraints) or None)
    return replace(claim, spec=ResourceClaimSpec(devices=devices))


def _counting(alone: ResourceClaim, count: int) -> ResourceClaim:
    """Return a claim with one request that asks for another number of devices."""
    (request,) = alone.spec.devices.requests or ()
    if request.first_available:
        (alternative,) = request.first_available
        return _with(alone, _only(request, replace(alternative, count=count)))
    exactly = replace(request.exactly or ExactDeviceRequest(), count=count)
    return _with(alone, replace(request, exactly=exactly))


def _alternatives(reasons: Sequence[Misfit | None]) -> Iterator[Misfit]:
    """Yield why no alternative of a request can be met."""
    # What nobody publishes may come, and so an alternative that can be met.
    may_come = "another alternative asks for what is not published yet" if None in reasons else ""
    for one in reasons:
        if one is not None:
            yield replace(one, doubt=one.doubt or may_come)


def _devices(devices: Sequence[PublishedDevice]) -> str:
    """Return what the selectors choose, by driver."""
    drivers = sorted({each.id.driver for each in devices})
    return f"selected devices of {shown(', '.join(drivers)).strip(_QUOTE)}"


def _device(devices: Sequence[PublishedDevice]) -> str:
    return _devices(devices).replace("devices", "device", 1)
