"""Reasons that no node of the idle cluster fits claims, and the fields of the claims that cause them.

Each request is evaluated alone, then each claim, then all claims of a pod together; the first
infeasible part is reported. What other rules report is left out: selectors that match no device, and
capacities that no device publishes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from allocator.explain.change import ClosestFit
from allocator.explain.selector import one_line
from allocator.model.consumption import Consumption, consumption
from allocator.model.devices import PublishedDevice
from allocator.model.outcome import AttemptFailed, RejectionReason
from allocator.model.requests import Request
from allocator.model.selectors import selector_chain
from findings.field_path import FieldPath
from findings.finding import Code
from findings.text import quote_text
from kube.api.resource import (
    MAX_RESULTS,
    ResourceClaim,
)
from kube.quantity import Quantity
from rules.feasibility.bounded_search import Feasibility
from rules.feasibility.droppable import find_droppable
from rules.feasibility.idle_cluster import Claims, IdleCluster, signature
from rules.feasibility.partial_claims import (
    claim_of_request,
    with_alternative,
    with_constraints,
    with_count,
)
from rules.feasibility.unusable_pools import describe_unusable_pools
from rules.model.requests import exceeds_compile_cost, list_selectors

_QUOTE: Final = '"'
_UNLIMITED: Final = Quantity("1000E")
MAX_REQUESTS: Final = 32
"""Requests of all claims that are evaluated one by one."""
MAX_CLOSEST_FIT_TEXT: Final = 2 * 1024
"""Characters of selectors. The search for a closest fit compiles most of them again for each condition
that it leaves out."""


class Infeasibility(msgspec.Struct, frozen=True, kw_only=True):
    """One reason no node fits claims even without allocations.

    Attributes:
        claim: Index of the infeasible claim; None for several claims together.
        path: Path of the cause below the claim's `devices`; empty for several claims.
        message: The cause in short.
        reasons: The reasons against the devices of nodes, by group of nodes.
        drivers: Drivers of the devices in question.
        classes: Names of the DeviceClasses in question.
        doubt: The reason the verdict may be wrong with any inventory; empty if it is not.
        closest_fit: The smallest change to the claims that makes them feasible.
        droppable: The requests without which the others are feasible, by the indices of their claims and of
            the requests, without those that the closest fit changes; only of claims infeasible together.
    """

    code: Code
    claim: int | None
    path: FieldPath
    message: str
    reasons: tuple[str, ...] = ()
    drivers: frozenset[str] = frozenset()
    classes: frozenset[str] = frozenset()
    doubt: str = ""
    closest_fit: ClosestFit | None = None
    droppable: tuple[tuple[int, int], ...] = ()


def is_small_enough_for_closest_fit(claims: Claims) -> bool:
    """Return True if the selectors of claims are short enough to search for a closest fit."""
    selectors = list_selectors(claim.spec.devices for claim in claims)
    return not exceeds_compile_cost(selectors, MAX_CLOSEST_FIT_TEXT)


def find_infeasibilities(idle_cluster: IdleCluster, claims: Claims) -> tuple[Infeasibility, ...]:
    """Return the reasons that no node fits the claims together; empty if some node does.

    Also empty where an error ends the attempt: other rules report it.
    """
    key = signature(claims)
    return idle_cluster.memoize(
        ("infeasibilities", key.hash),
        lambda: _find_infeasibilities(idle_cluster, claims),
        size=key.size,
    )


def _find_infeasibilities(idle_cluster: IdleCluster, claims: Claims) -> tuple[Infeasibility, ...]:
    verdict = idle_cluster.feasibility(claims)
    if verdict in {Feasibility.FEASIBLE, Feasibility.NOT_EVALUATED}:
        return ()
    try:
        reasons = _Diagnosis(idle_cluster, claims).reasons(verdict)
    except AttemptFailed:
        # A part of the claims ends the attempt, so nothing is known.
        return ()
    if not reasons or all(reason.code is Code.NOT_EVALUATED for reason in reasons):
        return tuple(reasons)
    closest_fit = (
        idle_cluster.closest_fit(claims) if is_small_enough_for_closest_fit(claims) else None
    )
    reasons = [replace(reason, closest_fit=closest_fit) for reason in reasons]
    return tuple(_with_droppable(reason, idle_cluster, claims) for reason in reasons)


def _with_droppable(
    reason: Infeasibility, idle_cluster: IdleCluster, claims: Claims
) -> Infeasibility:
    fit = reason.closest_fit
    if reason.code is not Code.JOINTLY_INFEASIBLE or (fit and not fit.only_lowers_amounts):
        return reason
    first = reason.claim or 0
    part = claims if reason.claim is None else (claims[first],)
    droppable = ((first + claim, index) for claim, index in find_droppable(idle_cluster, part))
    changes = (*fit.changes, *(fit.alternative.changes if fit.alternative else ())) if fit else ()
    changed = {(change.position, change.field.steps[1]) for change in changes if change.field}
    return replace(reason, droppable=tuple(place for place in droppable if place not in changed))


def find_drivers(idle_cluster: IdleCluster, claims: Claims) -> frozenset[str]:
    """Return the drivers that could serve claims.

    Raises:
        AttemptFailed: The attempt ends on all nodes.
    """
    return _Diagnosis(idle_cluster, claims).drivers()


class _Option(NamedTuple):
    """One alternative of a request, as the only request of a claim.

    Attributes:
        claim: Index of its claim.
        path: Its path below `devices`.
        alone: A claim with this alternative only.
        request: The alternative as the search sees it.
    """

    claim: int
    path: FieldPath
    alone: ResourceClaim
    request: Request


class _Diagnosis:
    """Evaluation of parts of infeasible claims."""

    def __init__(self, idle_cluster: IdleCluster, claims: Claims) -> None:
        self._idle_cluster = idle_cluster
        self._claims = claims

    def reasons(self, verdict: Feasibility) -> list[Infeasibility]:
        """Return the reasons for the verdict about all claims together."""
        reasons: list[Infeasibility] = []
        explained_indices: set[int] = set()
        for options in islice(self._requests(), MAX_REQUESTS):
            if all(self._is_infeasible((option.alone,)) for option in options):
                reasons += _report_reasons([self._option_reason(option) for option in options])
                explained_indices.add(options[0].claim)
        for index, claim in enumerate(self._claims):
            if index not in explained_indices and self._is_infeasible((claim,)):
                reasons.append(self._joint_reason((claim,), index))
                explained_indices.add(index)
        if explained_indices:
            return sorted(reasons, key=lambda reason: reason.claim or 0)
        if verdict is Feasibility.INFEASIBLE:
            return [self._joint_reason(self._claims, None)]
        message = "the search for a node that can ever fit exceeded its budget"
        unknown = Code.NOT_EVALUATED
        return [Infeasibility(code=unknown, claim=None, path=FieldPath(), message=message)]

    def _is_infeasible(self, claims: Claims) -> bool:
        return self._idle_cluster.feasibility(claims) is Feasibility.INFEASIBLE

    # --- each request ----------------------------------------------------------------------------

    def _requests(self) -> Iterator[list[_Option]]:
        """Yield the alternatives of each request, in order."""
        for index, claim in enumerate(self._claims):
            for number, request in enumerate(claim.spec.devices.requests or ()):
                path = FieldPath.of("requests", number)
                if request.first_available:
                    parts = [
                        (
                            path.child("firstAvailable", position),
                            with_alternative(request, alternative),
                        )
                        for position, alternative in enumerate(request.first_available)
                    ]
                else:
                    parts = [(path.child("exactly"), request)]
                yield [
                    self._option(index, place, claim_of_request(claim, part))
                    for place, part in parts
                ]

    def _option(self, claim: int, path: FieldPath, alone: ResourceClaim) -> _Option:
        return _Option(claim, path, alone, self._idle_cluster.ask((alone,)).requests[0][0][0])

    def _option_reason(self, option: _Option) -> Infeasibility | None:
        """Return the reason a request is infeasible; None if no device has its capacities."""
        devices = [device for node in self._devices_of(option) for device in node]
        if not devices:
            return self._unusable_pools_reason(option)
        if self._lacks_a_capacity(option, devices):
            return None
        return (
            self._capacity_reason(option, devices)
            or self._count_reason(option, devices)
            or self._unusable_reason(option, devices)
        )

    def _devices_of(self, option: _Option) -> list[list[PublishedDevice]]:
        """Return the devices that the selectors choose, by node."""
        selectors = selector_chain(option.request.expressions)
        pending = self._idle_cluster.ask((option.alone,))
        return [
            [device for device in node.devices if selectors.verdict(device) is True]
            for node in self._idle_cluster.example_nodes(pending)
        ]

    def _lacks_a_capacity(self, option: _Option, devices: Sequence[PublishedDevice]) -> bool:
        """Return True if none of the devices has some requested capacity."""
        names = {name for device in devices for name in device.device.capacity or ()}
        return not names.issuperset(option.request.capacity or ())

    # --- capacity --------------------------------------------------------------------------------

    def _capacity_reason(
        self, option: _Option, devices: Sequence[PublishedDevice]
    ) -> Infeasibility | None:
        """Return the amount that no device has, or that none has all; None if one has."""
        amounts_requested = option.request.capacity or {}
        for name, amount in sorted(amounts_requested.items()):
            with_it = [device for device in devices if name in (device.device.capacity or {})]
            if with_it and len(self._rejections({name: amount}, with_it)) == len(with_it):
                return self._amount_reason(option, name, amount, with_it)
        if amounts_requested and len(self._rejections(amounts_requested, devices)) == len(devices):
            amounts = " and ".join(
                f"{name} {amount}" for name, amount in sorted(amounts_requested.items())
            )
            message = f"none of the {_devices(devices)} has {amounts} together"
            return self._reason(
                option,
                Code.EXCEEDS_LARGEST_DEVICE,
                FieldPath.of("capacity", "requests"),
                message,
                devices,
            )
        return None

    def _amount_reason(
        self,
        option: _Option,
        name: str,
        amount: Quantity,
        devices: Sequence[PublishedDevice],
    ) -> Infeasibility:
        path = FieldPath.of("capacity", "requests").key(name)
        largest, owner = self._largest(option, name, amount, devices)
        if amount > largest:
            in_unit = Quantity.from_nanos(largest.nanos, amount.format)
            message = f"{name} {amount} is more than the {in_unit} of the largest {owner}"
            return self._reason(option, Code.EXCEEDS_LARGEST_DEVICE, path, message, devices)
        rounded_amount = self._round_amount(name, amount, devices)
        becomes = (
            f", which is rounded up to {rounded_amount}," if rounded_amount is not None else ""
        )
        message = (
            f"{name} {amount}{becomes} is outside the requestPolicy of every {_device(devices)}"
        )
        return self._reason(option, Code.OUTSIDE_REQUEST_POLICY, path, message, devices)

    def _largest(
        self, option: _Option, name: str, amount: Quantity, devices: Sequence[PublishedDevice]
    ) -> tuple[Quantity, str]:
        """Return the largest amount, and the devices it is of: the class if that is too small."""
        device_class = option.request.device_class.metadata.name
        stock = self._idle_cluster.class_stock(device_class).values()
        of_class = max(
            stock_entry.capacity[name] for stock_entry in stock if name in stock_entry.capacity
        )
        if amount > of_class:
            return of_class, f"device of class {quote_text(device_class)}"
        capacities = (device.device.capacity or {} for device in devices)
        return max(capacity[name].value for capacity in capacities), _device(devices)

    def _rejections(
        self, amounts: Mapping[str, Quantity], devices: Sequence[PublishedDevice]
    ) -> list[RejectionReason]:
        """Return the answers of devices that cannot provide the amounts."""
        answers = (
            consumption(amounts, device.device, self._idle_cluster.rules.features)
            for device in devices
        )
        return [answer for answer in answers if not isinstance(answer, Consumption)]

    def _round_amount(
        self, name: str, amount: Quantity, devices: Sequence[PublishedDevice]
    ) -> Quantity | None:
        """Return the amount after rounding, if all policies round it to the same other amount."""
        amounts = {self._without_maximum(name, amount, device) for device in devices}
        return next(iter(amounts)) if len(amounts) == 1 and amounts != {amount} else None

    def _without_maximum(
        self, name: str, amount: Quantity, published_device: PublishedDevice
    ) -> Quantity | None:
        """Return the amount that a device without limits would consume for a requested amount."""
        capacity = (published_device.device.capacity or {})[name]
        policy = capacity.request_policy
        if policy is not None and policy.valid_range is not None:
            policy = replace(policy, valid_range=replace(policy.valid_range, max=None))
        without_limit = replace(capacity, value=_UNLIMITED, request_policy=policy)
        device = replace(published_device.device, capacity={name: without_limit})
        answer = consumption({name: amount}, device, self._idle_cluster.rules.features)
        return answer.amounts[name] if isinstance(answer, Consumption) else None

    def _unusable_reason(
        self, option: _Option, devices: Sequence[PublishedDevice]
    ) -> Infeasibility:
        """Return that another cause keeps all devices from use, such as the labels of nodes."""
        message = f"none of the {_devices(devices)} can be used"
        if option.request.all_devices:
            message = f"no node can allocate all of its {_devices(devices)}"
        reason = self._reason(option, Code.NO_USABLE_DEVICE, FieldPath(), message, devices)
        return replace(reason, doubt="the devices exist, so the cause may be temporary")

    def _unusable_pools_reason(self, option: _Option) -> Infeasibility | None:
        """Return the reason no selected device can be used; None if no device is selected."""
        pools = self._idle_cluster.unusable_pools((option.alone,))
        if not pools:
            return None
        number = sum(pool.devices for pool in pools)
        message = f"0 of {number:,} selected devices can be used: {describe_unusable_pools(pools)}"
        return Infeasibility(
            code=Code.NO_USABLE_DEVICE,
            claim=option.claim,
            path=option.path,
            message=message,
            drivers=frozenset(pool.pool.driver for pool in pools),
            classes=frozenset({option.request.device_class.metadata.name}),
            doubt=pools[0].remedy.value,
        )

    # --- counts ----------------------------------------------------------------------------------

    def _count_reason(
        self, option: _Option, devices: Sequence[PublishedDevice]
    ) -> Infeasibility | None:
        """Return that no node has so many devices; None if one would be too many, too."""
        count = option.request.count
        if option.request.all_devices or count < 2:
            return None
        feasible = self._largest_feasible_count(option.alone, min(count, MAX_RESULTS + 1))
        if not feasible:
            return None
        available = _device(devices) if feasible == 1 else _devices(devices)
        message = f"count {count} is more than the {feasible} {available} that one node can provide"
        return self._reason(
            option, Code.EXCEEDS_LARGEST_NODE, FieldPath.of("count"), message, devices
        )

    def _largest_feasible_count(self, alone: ResourceClaim, limit: int) -> int:
        """Return the largest feasible count below a limit; 0 for none."""
        low, high = 0, limit
        while high - low > 1:
            middle = (low + high) // 2
            verdict = self._idle_cluster.feasibility((with_count(alone, middle),))
            if verdict is Feasibility.FEASIBLE:
                low = middle
            else:
                high = middle
        return low

    def _reason(
        self,
        option: _Option,
        code: Code,
        path: FieldPath,
        message: str,
        devices: Iterable[PublishedDevice],
    ) -> Infeasibility:
        return Infeasibility(
            code=code,
            claim=option.claim,
            path=option.path.join(path),
            message=message,
            reasons=self._idle_cluster.summarize_reasons((option.alone,)),
            drivers=self._drivers((option,), devices),
            classes=frozenset({option.request.device_class.metadata.name}),
        )

    def _drivers(
        self, options: Iterable[_Option], devices: Iterable[PublishedDevice]
    ) -> frozenset[str]:
        """Return the drivers that could serve options: those of devices, and those in selectors.

        Where selectors name no driver with slices, every driver could.
        """
        drivers = {device.id.driver for device in devices}
        all_drivers = self._idle_cluster.drivers
        for option in options:
            texts = [expression.text for expression in option.request.expressions]
            named_drivers = {
                driver for driver in all_drivers if any(driver in text for text in texts)
            }
            drivers |= named_drivers or all_drivers
        return frozenset(drivers)

    # --- requests and claims together ------------------------------------------------------------

    def _joint_reason(self, claims: Claims, index: int | None) -> Infeasibility:
        """Return the reason claims are infeasible together, though each request alone is not."""
        part = _Diagnosis(self._idle_cluster, claims)
        path, code, message = self._joint_cause(claims)
        return Infeasibility(
            code=code,
            claim=index,
            path=path if index is not None else FieldPath(),
            message=message,
            reasons=self._idle_cluster.summarize_reasons(claims),
            drivers=part.drivers(),
            classes=part.classes(),
        )

    def drivers(self) -> frozenset[str]:
        """Return the drivers that could serve the claims."""
        options = [option for request in self._requests() for option in request]
        devices = [
            device for option in options for node in self._devices_of(option) for device in node
        ]
        return self._drivers(options, devices)

    def classes(self) -> frozenset[str]:
        """Return the names of the classes of the claims."""
        return frozenset(
            option.request.device_class.metadata.name
            for request in self._requests()
            for option in request
        )

    def _joint_cause(self, claims: Claims) -> tuple[FieldPath, Code, str]:
        """Return path, code and message of the contradiction."""
        names = " and ".join(self._idle_cluster.deciding_policies(claims))
        under = f" under DeviceCompatibilityPolicy {one_line(names)}" if names else ""
        claims_without_constraints = [with_constraints(claim, ()) for claim in claims]
        if self._idle_cluster.feasibility(claims_without_constraints) is Feasibility.FEASIBLE:
            message = f"no node can ever satisfy the constraints{under}"
            return *self._constraint(claims), message
        if self._idle_cluster.is_feasible_without_modes(claims):
            message = f"no node can ever provide devices of compatible modes{under}"
            return FieldPath.of("requests"), Code.INCOMPATIBLE_MODES, message
        message = "no node can ever provide all requested devices together"
        return FieldPath.of("requests"), Code.JOINTLY_INFEASIBLE, message

    def _constraint(self, claims: Claims) -> tuple[FieldPath, Code]:
        """Return the constraint that makes the claims infeasible, or all constraints."""
        for number, claim in enumerate(claims):
            constraints = claim.spec.devices.constraints or ()
            for index in range(len(constraints)):
                fewer = (*constraints[:index], *constraints[index + 1 :])
                changed_claims = [
                    *claims[:number],
                    with_constraints(claim, fewer),
                    *claims[number + 1 :],
                ]
                if self._idle_cluster.feasibility(changed_claims) is Feasibility.FEASIBLE:
                    return FieldPath.of("constraints", index), Code.UNSATISFIABLE_CONSTRAINT
        return FieldPath.of("constraints"), Code.UNSATISFIABLE_CONSTRAINT


# --- parts of reasons -----------------------------------------------------------------------------


def _report_reasons(reasons: Sequence[Infeasibility | None]) -> Iterator[Infeasibility]:
    """Yield the reasons for the alternatives of a request, with the doubt that others cast."""
    doubt = "another alternative needs devices that are not published" if None in reasons else ""
    for reason in reasons:
        if reason is not None:
            yield replace(reason, doubt=reason.doubt or doubt)


def _devices(devices: Sequence[PublishedDevice]) -> str:
    """Return a phrase for selected devices with their drivers."""
    drivers = sorted({device.id.driver for device in devices})
    return f"selected devices of {quote_text(', '.join(drivers)).strip(_QUOTE)}"


def _device(devices: Sequence[PublishedDevice]) -> str:
    return _devices(devices).replace("devices", "device", 1)
