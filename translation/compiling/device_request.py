"""One intent to one request of a driver: selectors, amounts, alternatives, configuration.

A request that the driver cannot express is an error; one that it can express only in part is a
warning.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

import msgspec

from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, warning
from kube.api.resource import (
    MAX_ALTERNATIVES,
    DeviceClaimConfiguration,
    DeviceConstraint,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
)
from kube.quantity import Format, Quantity
from translation.compiling.conditions import (
    Condition,
    Relation,
    Selector,
    as_device_selectors,
    select,
)
from translation.compiling.device_capacity import CapacityCompiler
from translation.compiling.device_configs import compile_configs
from translation.compiling.device_constraints import ConstraintCompiler
from translation.compiling.device_selectors import SelectorCompiler
from translation.compiling.memory_shares import (
    are_few_combinations,
    as_capacity,
    equal_sizes_finding,
    may_combine_sizes,
    merged_sizes,
    merged_sizes_finding,
    nominal_memory_finding,
    nominal_sizes,
    shares_by_size,
    size_name,
)
from translation.model.intents import DeviceKind, Intent
from translation.profiles.device_facts import UNKNOWN, Facts
from translation.profiles.profile import (
    DeviceProfile,
    NamedDevices,
    Profile,
    Sharing,
)

CONNECTED: Final = "connected"
ANY: Final = "any"


class _Alternative(msgspec.Struct, frozen=True, kw_only=True):
    """One alternative of a request.

    Attributes:
        selectors: Additional ones.
        capacity: Additional amounts.
    """

    name: str
    selectors: tuple[Selector, ...] = ()
    capacity: Mapping[str, Quantity] = {}


class CompiledRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request, and the source of each of its fields.

    Attributes:
        sources: Field below the request to the path in the pod of the key that requested it.
        conditions: The CEL expression of each selector to the conditions of which it requires one.
    """

    request: DeviceRequest
    sources: Mapping[FieldPath, FieldPath]
    conditions: Mapping[str, tuple[Condition, ...]]

    def sources_at(self, field: FieldPath) -> Mapping[FieldPath, FieldPath]:
        """Return the sources of a claim that has the request at a field below `devices`."""
        return {field.join(below): path for below, path in self.sources.items()}


class RequestCompiler:
    """Compiles one intent to a request for one kind of device, and collects findings."""

    def __init__(
        self,
        profile: Profile,
        device: DeviceProfile,
        facts: Facts,
        intent: Intent,
        gpu_facts: Facts = UNKNOWN,
    ) -> None:
        """Keep the inputs that decide the request.

        Args:
            gpu_facts: The facts of the driver's whole GPUs, the parents of its MIG devices.
        """
        self._gpu_facts = gpu_facts
        self._profile = profile
        self._device = device
        self._facts = facts
        self._intent = intent
        self._shared = device.sharing is Sharing.ALWAYS or (
            device.sharing is Sharing.PUBLISHED and bool(facts.shared)
        )
        self.findings: list[Finding] = []
        self._selectors = SelectorCompiler(profile, device, intent, self.findings)
        self._constraints = ConstraintCompiler(
            profile, facts, intent, self._selectors, self.findings, shared=self._shared
        )
        self._amounts = CapacityCompiler(
            profile, device, facts, intent, self.findings, shared=self._shared
        )

    def request(self, name: str) -> CompiledRequest:
        """Compile the request; `findings` has the facts that it cannot express."""
        sources: dict[FieldPath, FieldPath] = {}
        named_devices = self._selectors.named_devices()
        class_name = named_devices.class_name or self._device.class_name
        every = (
            self._intent.every
            or (self._intent.pool and self._shared)
            or named_devices.every is True
        )
        self._warn_variables(named_devices)
        selectors = [*self._selectors.of_filter(), *self._selectors.of_name(named_devices)]
        capacity = self._amounts.capacity()
        alternatives = (
            self._alternatives() or self._parts_of_cores() or self._connected_first(named_devices)
        )
        if self._intent.kind is DeviceKind.MIG and len(alternatives) == 1:
            selectors += alternatives.pop().selectors
        conditions = {
            selector.expression: selector.conditions
            for selectors_of_part in (selectors, *(way.selectors for way in alternatives))
            for selector in selectors_of_part
        }
        if not alternatives:
            request = DeviceRequest(
                name=name,
                exactly=ExactDeviceRequest(
                    device_class_name=class_name,
                    selectors=as_device_selectors(selectors),
                    allocation_mode="All" if every else "ExactCount",
                    count=None if every else self._intent.count,
                    capacity=as_capacity(capacity),
                ),
            )
            sources |= self._sources(FieldPath.of("exactly"), selectors, capacity)
            return CompiledRequest(request=request, sources=sources, conditions=conditions)
        request = DeviceRequest(
            name=name,
            first_available=tuple(
                DeviceSubRequest(
                    name=alternative.name,
                    device_class_name=class_name,
                    selectors=as_device_selectors((*selectors, *alternative.selectors)),
                    allocation_mode="ExactCount",
                    count=self._intent.count,
                    capacity=as_capacity({**capacity, **alternative.capacity}),
                )
                for alternative in alternatives
            ),
        )
        for index, alternative in enumerate(alternatives):
            sources |= self._sources(
                FieldPath.of("firstAvailable", index),
                [*selectors, *alternative.selectors],
                {**capacity, **alternative.capacity},
            )
        return CompiledRequest(request=request, sources=sources, conditions=conditions)

    def _sources(
        self,
        field: FieldPath,
        selectors: list[Selector],
        capacity: Mapping[str, Quantity],
    ) -> dict[FieldPath, FieldPath]:
        """Return the source of each field of the request or alternative at `field`."""
        sources = {FieldPath(): self._intent.path("count")}
        for index, selector in enumerate(selectors):
            sources[field.child("selectors", index)] = self._intent.path(selector.aspect)
        for name in capacity:
            aspect = "count"
            if name == self._device.memory:
                aspect = "memory"
            elif name == self._device.compute_units or (
                self._device.cores is not None and name == self._device.cores.capacity
            ):
                aspect = "cores"
            sources[field.child("capacity", "requests").key(name)] = self._intent.path(aspect)
        return sources

    def constraints(self, *names: str) -> Iterator[tuple[DeviceConstraint, FieldPath]]:
        """Yield each constraint between the devices of the intent's requests, and its source."""
        yield from self._connected_constraints(names)
        yield from self._constraints.between(names)

    def _connected_constraints(
        self, names: tuple[str, ...]
    ) -> Iterator[tuple[DeviceConstraint, FieldPath]]:
        if self._intent.count == 1 and not self._intent.every:
            return
        attribute = self._connected_by(self._selectors.matched_devices())
        if attribute is not None:
            group = tuple(f"{name}/{CONNECTED}" for name in names)
            match = self._selectors.full_name(attribute)
            yield (
                DeviceConstraint(requests=group, match_attribute=match),
                self._intent.path("count"),
            )

    def may_combine_sizes(self) -> bool:
        """Return True if devices of several memory sizes may serve the intent together."""
        intent = self._intent
        if intent.kind is DeviceKind.MIG:
            least = intent.memory or self._least_part_of_gpu()
            return (
                self._facts.mixed_profiles
                and least is not None
                and are_few_combinations(len(self._large_enough(least)), intent.count)
            )
        return self._shared and may_combine_sizes(self._intent, self._device, self._facts)

    def configs(self, name: str) -> Iterator[tuple[DeviceClaimConfiguration, FieldPath]]:
        """Yield each configuration that the driver needs for the request, and its source."""
        return compile_configs(name, self._intent, self._profile, self.findings)

    # --- alternatives

    def _alternatives(self) -> list[_Alternative]:
        """Return one alternative per memory size, if the amount depends on it."""
        intent, memory = self._intent, self._device.memory
        if intent.kind is DeviceKind.MIG and intent.memory is not None:
            return self._smallest_first(memory, intent.memory)
        if intent.kind is DeviceKind.MIG and intent.memory_percent is not None:
            return self._part_of_gpu(memory, intent.memory_percent)
        default_is_part = self._shared and self._facts.default_is_part
        if ways := self._constraints.partition_ways():
            return [
                _Alternative(name=name, selectors=(select("memory", condition),))
                for name, condition in ways
            ]
        percent = 100 if default_is_part and intent.takes_all_memory else intent.memory_percent
        if intent.through_mps or intent.replica or percent is None:
            return []
        if memory is None:
            self._fail(Code.CANNOT_EXPRESS, "memory", f"{self._profile.driver} publishes no memory")
            return []
        if not self._facts.sizes:
            self._fail(
                Code.MEMORY_SIZES_UNKNOWN,
                "memory",
                f"{percent} percent of an unknown size: {self._profile.driver} has published no "
                "device",
                f"have {self._profile.driver} publish devices on nodes that the pod may use, since an amount of memory "
                "needs them, too; where no cluster was read, provide its inventory (--snapshot)",
            )
            return []
        if not self._shared:
            return []
        shares = shares_by_size(self._facts.sizes, percent)
        ranges = merged_sizes(list(shares), MAX_ALTERNATIVES)
        if len(ranges) < len(shares):
            self.findings.append(merged_sizes_finding(intent, ranges))
        if len(shares) > 1 and intent.count > 1 and percent < 100:
            self.findings.append(equal_sizes_finding(intent, len(shares)))
        return [
            _Alternative(
                name=size_name(least),
                selectors=(select("memory", self._memory_between(least, most)),),
                capacity={memory: shares[least]},
            )
            for least, most in ranges
        ]

    def _parts_of_cores(self) -> list[_Alternative]:
        """Return one alternative per published number of compute units, if cores are a part of it."""
        units, percent = self._device.compute_units, self._intent.cores_percent or 0
        numbers = self._facts.compute_units or ()
        if (
            not isinstance(units, str)
            or self._device.cores is not None
            or not self._intent.takes_part_of_cores
        ):
            return []
        if len(numbers) > 1 and self._intent.count > 1:
            self._warn(
                Code.EQUAL_COMPUTE_UNITS,
                "cores",
                f"devices with {len(numbers)} different numbers of compute units are published, and the "
                f"{self._intent.count} devices must have the same",
            )
        has_units = partial(self._selectors.condition, units, Relation.SAME_AMOUNT)
        return [
            _Alternative(
                name=f"units-{number}",
                selectors=(select("cores", has_units(Quantity(number))),),
                # Rounded down, so that percentages which add up to 100 fit; but 0 would be no limit.
                capacity={units: Quantity(max(1, number * percent // 100))},
            )
            for number in numbers[:MAX_ALTERNATIVES]
        ]

    def _memory_between(self, least: Quantity, most: Quantity) -> Condition:
        if least == most:
            return self._selectors.memory_is(Relation.SAME_AMOUNT, least)
        return self._selectors.memory_is(Relation.BETWEEN, least, most)

    def _connected_first(self, named_devices: NamedDevices) -> list[_Alternative]:
        """Return the alternatives connected and any, if a name prefers connected devices."""
        if self._connected_by(named_devices) is None:
            return []
        return [_Alternative(name=CONNECTED), _Alternative(name=ANY)]

    def _connected_by(self, named_devices: NamedDevices) -> str | None:
        """Return the attribute that so many connected devices have in common; None for any."""
        return (named_devices.connected or {}).get(str(self._intent.count))

    def _part_of_gpu(self, memory: str | None, percent: int) -> list[_Alternative]:
        """Return the MIG devices with a percentage of a GPU's memory; of several sizes, the largest's."""
        least = self._least_part_of_gpu()
        if least is None:
            self._fail(
                Code.MEMORY_SIZES_UNKNOWN,
                "memory",
                f"{percent} percent of an unknown size: MIG devices do not publish the memory of their "
                f"GPU, and {self._profile.driver} has published no whole GPU",
                "request an amount of memory, not a percentage",
            )
            return []
        sizes = {size.size for size in self._gpu_facts.sizes or ()}
        if len(sizes) > 1:
            self._warn(
                Code.MEMORY_SIZES_MERGED,
                "memory",
                f"GPUs of {len(sizes)} memory sizes are published, and a MIG device does not publish "
                f"its GPU's: it has {percent} percent of the largest, {least}, or more",
            )
        return self._smallest_first(memory, least)

    def _least_part_of_gpu(self) -> Quantity | None:
        """Return the percentage of the largest GPU's memory; None without one, or without a GPU."""
        percent = self._intent.memory_percent
        sizes = [size.size for size in self._gpu_facts.sizes or ()]
        if percent is None or not sizes:
            return None
        return Quantity.from_int(int(max(sizes)) * percent // 100, Format.BINARY)

    def _large_enough(self, least: Quantity) -> list[Quantity]:
        """Return the published memory sizes that count with at least so much, ascending."""
        sizes, nominal = shares_by_size(self._facts.sizes or (), 100), self._nominal_sizes()
        return [size for size in sizes if max(size, nominal.get(size, size)) >= least]

    def _nominal_sizes(self) -> dict[Quantity, Quantity]:
        """Return size to the memory in the names of such MIG devices, if they count with it."""
        return nominal_sizes(self._facts.named_sizes) if self._intent.nominal_memory else {}

    def _smallest_first(self, memory: str | None, least: Quantity) -> list[_Alternative]:
        if memory is None:
            self._fail(Code.CANNOT_EXPRESS, "memory", f"{self._profile.driver} publishes no memory")
            return []
        enough = self._large_enough(least)
        if not enough and self._intent.memory_percent == 100:
            # Not even the profile of a whole GPU has all of its memory, so such a claim would be served by none.
            self._fail(
                Code.MEMORY_SIZES_UNKNOWN,
                "memory",
                f"all memory of a GPU is {least}, and no MIG device of that size is published",
                "request an amount of memory",
            )
            return []
        if not enough:
            self._warn(
                Code.SMALLEST_DEVICE_NOT_PREFERRED,
                "memory",
                f"no MIG device of {least} or more is published yet; the claim accepts any such "
                "device",
            )
            at_least = self._selectors.memory_is(Relation.AT_LEAST, least)
            return [_Alternative(name="memory", selectors=(select("memory", at_least),))]
        if len(enough) > 1 and self._intent.count > 1 and self._facts.mixed_profiles:
            self.findings.append(equal_sizes_finding(self._intent, len(enough)))
        if enough[0] < least and self._intent.memory_percent != 100:
            nominal = self._nominal_sizes()[enough[0]]
            self.findings.append(nominal_memory_finding(self._intent, nominal, enough))
        is_of_size = partial(self._selectors.memory_is, Relation.SAME_AMOUNT)
        return [
            _Alternative(name=size_name(size), selectors=(select("memory", is_of_size(size)),))
            for size in enough[:MAX_ALTERNATIVES]
        ]

    # --- findings

    def _warn_variables(self, named_devices: NamedDevices) -> None:
        for variable in named_devices.variables or ():
            self._warn(
                Code.ENV_VAR_NOT_PROVIDED,
                "count",
                f"{variable}, which the device plugin sets, is not set by {self._profile.driver}",
            )

    def _fail(self, code: Code, aspect: str, message: str, fix: str = "") -> None:
        self.findings.append(error(code, self._intent.path(aspect), message, fix))

    def _warn(self, code: Code, aspect: str, message: str) -> None:
        self.findings.append(warning(code, self._intent.path(aspect), message))
