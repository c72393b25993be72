"""One intent to one request of a driver: selectors, amounts, alternatives, configuration.

A wish that the driver cannot hold is an error; one that it holds only in part is a warning. Foreign
text reaches CEL only as quoted literals, and every attribute is tested for presence first, because
a CEL error ends a whole scheduling attempt.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from kube.api.resource import (
    MAX_ALTERNATIVES,
    MAX_SELECTOR_BYTES,
    CapacityRequirements,
    CelSelector,
    DeviceClaimConfiguration,
    DeviceConstraint,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    ExactDeviceRequest,
    OpaqueDeviceConfiguration,
)
from kube.cel.literal import quote
from kube.quantity import Quantity
from webhook.findings import Code, Finding, error, printable, warning
from webhook.intents import DeviceKind, Intent, Scope
from webhook.inventory import PCIE_ROOT, Facts, MemorySize
from webhook.profile import AttributeValue, DeviceProfile, NamedDevices, Profile, Sharing

_FILTERED_BY: Final = {
    "mig_profile": "MIG profiles",
    "models": "product names",
    "not_models": "product names",
    "uuids": "UUIDs",
    "not_uuids": "UUIDs",
}


class _Alternative(msgspec.Struct, frozen=True, kw_only=True):
    """One way to meet a request: a further selector, and amounts."""

    name: str
    selector: str
    capacity: Mapping[str, Quantity] = {}


class RequestCompiler:
    """Turns one intent into a request of one kind of device; collects what there is to say."""

    def __init__(
        self, profile: Profile, device: DeviceProfile, facts: Facts, intent: Intent
    ) -> None:
        self._profile = profile
        self._device = device
        self._facts = facts
        self._intent = intent
        self._shared = device.sharing is Sharing.ALWAYS or (
            device.sharing is Sharing.PUBLISHED and bool(facts.shared)
        )
        self._unsayable = (
            Code.PUBLISHED_OTHERWISE if device.sharing is Sharing.PUBLISHED else Code.CANNOT_EXPRESS
        )
        self.findings: list[Finding] = []

    def request(self, name: str) -> DeviceRequest:
        """Return the request; `findings` tells what it could not hold."""
        named = self._named()
        class_name = named.class_name or self._device.class_name
        every = self._intent.every or (self._intent.pool and self._shared)
        selectors = [*self._selectors(), *self._of_name(named)]
        capacity = self._capacity()
        alternatives = self._alternatives()
        if self._intent.kind is DeviceKind.MIG and len(alternatives) == 1:
            selectors.append(alternatives.pop().selector)
        if not alternatives:
            return DeviceRequest(
                name=name,
                exactly=ExactDeviceRequest(
                    device_class_name=class_name,
                    selectors=_as_selectors(selectors),
                    allocation_mode="All" if every else "ExactCount",
                    count=None if every else self._intent.count,
                    capacity=_as_capacity(capacity),
                ),
            )
        return DeviceRequest(
            name=name,
            first_available=tuple(
                DeviceSubRequest(
                    name=alternative.name,
                    device_class_name=class_name,
                    selectors=_as_selectors([*selectors, alternative.selector]),
                    allocation_mode="ExactCount",
                    count=self._intent.count,
                    capacity=_as_capacity({**capacity, **alternative.capacity}),
                )
                for alternative in alternatives
            ),
        )

    def constraints(self, *names: str) -> Iterator[DeviceConstraint]:
        """Yield what must hold between the devices of the requests, which are this intent's."""
        if self._intent.count == 1 and not self._intent.every:
            return
        if self._shared and self._device.unique:
            yield DeviceConstraint(
                requests=names, distinct_attribute=self._full_name(self._device.unique)
            )
        yield from self._within(names)
        if self._intent.same_numa:
            numa = self._device.attributes.numa
            if numa:
                yield DeviceConstraint(requests=names, match_attribute=self._full_name(numa))
            else:
                self._warn(
                    Code.NOT_PUBLISHED,
                    "numa",
                    f"{self._profile.driver} publishes no NUMA node; the devices may be apart",
                )

    def _within(self, names: tuple[str, ...]) -> Iterator[DeviceConstraint]:
        match self._intent.within:
            case None:
                return
            case Scope.PCIE_ROOT if self._facts.per_root == ():
                self._fail(
                    Code.PUBLISHED_OTHERWISE,
                    "scope",
                    f"no device of {self._profile.driver} says under which PCIe root it is",
                    "use a driver that publishes it, or leave the scope out",
                )
            case Scope.PCIE_ROOT:
                yield DeviceConstraint(requests=names, match_attribute=PCIE_ROOT)
            case Scope.NUMA_NODE:
                numa = self._device.attributes.numa
                if numa is None:
                    self._fail(
                        Code.CANNOT_EXPRESS,
                        "scope",
                        f"{self._profile.driver} publishes no NUMA node",
                        "use a driver that publishes it, or leave the scope out",
                    )
                else:
                    yield DeviceConstraint(requests=names, match_attribute=self._full_name(numa))

    def configs(self, name: str) -> Iterator[DeviceClaimConfiguration]:
        """Yield the configuration that the driver needs for the request."""
        mps = self._device.mps
        if self._intent.through_mps and mps is not None:
            parameters = msgspec.to_builtins(mps.parameters)
            if mps.threads and self._intent.cores_percent:
                _put(parameters, mps.threads, self._intent.cores_percent)
            if mps.memory and self._intent.memory is not None:
                _put(parameters, mps.memory, str(self._intent.memory))
            yield DeviceClaimConfiguration(
                requests=(name,),
                opaque=OpaqueDeviceConfiguration(
                    driver=self._profile.driver, parameters=parameters
                ),
            )

    # --- selectors

    def _selectors(self) -> list[str]:
        wanted = self._intent.filter
        selectors = [f"!({self._present(attribute)})" for attribute in self._device.lacks]
        attributes = self._device.attributes
        if wanted.mig_profile is not None:
            is_profile = f" == {quote(wanted.mig_profile)}"
            selectors += self._that("mig_profile", attributes.mig_profile, is_profile)
        if wanted.models is not None:
            selectors += self._that("models", attributes.model, *_contains(wanted.models))
        if wanted.not_models:
            contains = _contains(wanted.not_models)
            selectors += self._that("not_models", attributes.model, *contains, negated=True)
        if wanted.uuids is not None:
            selectors += self._that("uuids", attributes.uuid, _is_one_of(wanted.uuids))
        if wanted.not_uuids:
            is_one_of = _is_one_of(wanted.not_uuids)
            selectors += self._that("not_uuids", attributes.uuid, is_one_of, negated=True)
        return selectors

    def _that(
        self, aspect: str, attribute: str | None, *tests: str, negated: bool = False
    ) -> list[str]:
        """Return the selector of devices whose attribute passes any of the tests.

        Args:
            aspect: What of the intent to blame.
            tests: What follows the value in an expression.
            negated: Select the other devices, and those without the attribute.
        """
        if attribute is None:
            what = _FILTERED_BY[aspect]
            self._fail(Code.CANNOT_EXPRESS, aspect, f"{self._profile.driver} publishes no {what}")
            return []
        value = self._value(attribute)
        any_of = " || ".join(f"{value}{test}" for test in tests)
        passes = f"({any_of})" if len(tests) > 1 else any_of
        selector = f"{self._present(attribute)} && {passes}"
        selector = f"!({selector})" if negated else selector
        if len(selector) > MAX_SELECTOR_BYTES:
            self._fail(
                Code.TOO_LONG,
                aspect,
                f"the selector would have {len(selector)} bytes, at most {MAX_SELECTOR_BYTES}",
                "name fewer devices",
            )
            return []
        return [selector]

    def _named(self) -> NamedDevices:
        """Return what the legacy resource name stands for; without one all of the kind will do."""
        resource = self._intent.filter.resource
        if resource is None:
            return NamedDevices()
        found = self._device.named(resource)
        if found is None:
            self._fail(
                Code.CANNOT_EXPRESS,
                "count",
                f"the profile of {self._profile.driver} does not say which of its devices "
                f"{printable(resource)} stands for",
                "name it under resources in a profile of your own",
            )
            return NamedDevices()
        name, named = found
        if name != resource and not named.tells_names_apart:
            self._warn(
                Code.NOT_PUBLISHED,
                "count",
                f"{self._profile.driver} does not publish which devices {printable(resource)} "
                f"stands for: any that {name} stands for will do",
            )
        return named

    def _of_name(self, named: NamedDevices) -> Iterator[str]:
        for attribute, value in sorted(named.where.items()):
            yield self._equal(attribute, value)
        resource = self._intent.filter.resource or ""
        wanted = (
            (named.short_name, resource.partition("/")[2]),
            (named.full_name, resource),
        )
        either = [self._equal(attribute, text) for attribute, text in wanted if attribute]
        if either:
            yield either[0] if len(either) == 1 else " || ".join(f"({each})" for each in either)

    def _equal(self, attribute: str, value: AttributeValue) -> str:
        literal = quote(value) if isinstance(value, str) else str(value).lower()
        return f"{self._present(attribute)} && {self._value(attribute)} == {literal}"

    # --- amounts

    def _capacity(self) -> dict[str, Quantity]:
        """Return the amounts that do not depend on the device's size."""
        intent = self._intent
        if intent.replica:
            return self._replica()
        if intent.through_mps:
            return self._through_mps()
        if intent.kind is DeviceKind.MIG:
            return {}
        if intent.kind is not DeviceKind.GPU and intent.cores_percent is not None:
            return self._part_of_other(intent.cores_percent)
        return self._all_of_it() if intent.exclusive else self._share()

    def _share(self) -> dict[str, Quantity]:
        """Return the amounts of memory and cores that the container asks for."""
        intent = self._intent
        capacity: dict[str, Quantity] = {}
        if not self._shared and intent.pool:
            self._warn(
                Code.WHOLE_DEVICE,
                "count",
                f"{self._profile.driver} does not share its devices: the share of a pool becomes "
                "one whole device",
            )
        if not self._shared and (intent.memory or intent.memory_percent or intent.cores_percent):
            self._warn(
                Code.WHOLE_DEVICE,
                "count",
                f"{self._profile.driver} does not share its devices: the share becomes a whole one",
            )
        if intent.memory is not None:
            if self._device.memory is None:
                self._fail(
                    Code.CANNOT_EXPRESS, "memory", f"{self._profile.driver} publishes no memory"
                )
            else:
                capacity[self._device.memory] = intent.memory
        if self._shared and intent.cores_percent == 100:
            # HAMi gives such a container a GPU to itself; a claim can only take all of its cores.
            self._warn(
                Code.NOT_ALONE,
                "cores",
                "all cores and part of the memory: containers without a cap on their cores may get "
                "the rest of it",
            )
        return capacity | self._cores()

    def _part_of_other(self, percent: int) -> dict[str, Quantity]:
        """Return the share of a device without memory, such as a NIC."""
        if not self._shared:
            if percent < 100:
                self._warn(
                    Code.WHOLE_DEVICE,
                    "count",
                    f"{self._profile.driver} does not share its devices: the share becomes a whole "
                    "one",
                )
            return {}
        if self._device.cores is not None:
            return self._cores()
        if percent == 100:
            self._warn(
                Code.NOT_ALONE,
                "count",
                "its devices are published for any number of users: others may come beside",
            )
        return {}

    def _cores(self) -> dict[str, Quantity]:
        asked = self._intent.cores_percent
        if asked is None:
            return {}
        if self._device.cores is None:
            # Uncapped needs no words, and all of an unshared device is what one gets.
            if asked and not (asked == 100 and not self._shared):
                self._fail(
                    self._unsayable if asked == 100 else Code.CANNOT_EXPRESS,
                    "cores",
                    f"{self._profile.driver} publishes no share of compute",
                    "drop the cores, or use a driver that shares them: --profile hami=NAME",
                )
            return {}
        # Explicitly, even for 0: the default of a capacity may be all of it. A small share must not
        # become 0, which is no cap at all.
        share = asked * self._device.cores.whole // 100
        return {self._device.cores.capacity: Quantity(max(share, min(asked, 1)))}

    def _all_of_it(self) -> dict[str, Quantity]:
        # The memory is left out: the default is all of it, or `_alternatives` names every size.
        if not self._shared:
            return {}
        capacity: dict[str, Quantity] = {}
        if self._device.cores is not None:
            capacity[self._device.cores.capacity] = Quantity(self._device.cores.whole)
        counts = self._facts.replicas or ()
        if self._device.replicas is not None and len(counts) == 1:
            capacity[self._device.replicas] = Quantity(counts[0])
        elif counts or self._facts.default_is_part or not (capacity or self._device.memory):
            # Of a device without amounts, such as most NICs, a claim that names none leaves all.
            self._warn(
                Code.NOT_ALONE,
                "count",
                "its devices are published for any number of users: others may come beside",
            )
        return capacity

    def _replica(self) -> dict[str, Quantity]:
        name = self._device.replicas
        if name is None or self._facts.replicas == ():
            self._fail(
                Code.CANNOT_EXPRESS if name is None else Code.PUBLISHED_OTHERWISE,
                "count",
                f"{self._profile.driver} publishes no replicas of a GPU",
                "run the driver with a number of consumable shares, or give a DeviceClass "
                "extendedResourceName nvidia.com/gpu.shared",
            )
            return {}
        if self._facts.replicas is None:
            self._warn(
                Code.NOT_PUBLISHED,
                "count",
                f"no inventory shows that {self._profile.driver} publishes capacity {name}",
            )
        return {name: Quantity(1)}

    def _through_mps(self) -> dict[str, Quantity]:
        if self._device.mps is None:
            self._fail(Code.CANNOT_EXPRESS, "mode", f"{self._profile.driver} starts no MPS server")
        elif self._shared:
            self._fail(
                self._unsayable,
                "mode",
                f"{self._profile.driver} starts no MPS server on devices that it shares itself",
                "drop the vgpu-mode, or publish the devices without consumable shares",
            )
        elif self._intent.memory_percent is not None:
            self._fail(
                Code.CANNOT_EXPRESS,
                "memory",
                "an MPS server limits memory in bytes, not in percent",
                "ask for an amount of memory, not a part",
            )
        else:
            self._warn(
                Code.SHARED_IN_POD_ONLY,
                "mode",
                "the MPS server serves this pod alone: other pods do not share its GPU",
            )
        return {}

    def _alternatives(self) -> list[_Alternative]:
        """Return one alternative per memory size, where the amount depends on it."""
        intent, memory = self._intent, self._device.memory
        if intent.kind is DeviceKind.MIG and intent.memory is not None:
            return self._smallest_first(memory, intent.memory)
        silence_is_part = self._shared and self._facts.default_is_part
        percent = 100 if silence_is_part and intent.takes_all_memory else intent.memory_percent
        if intent.through_mps or intent.replica or percent is None:
            return []
        if memory is None:
            self._fail(Code.CANNOT_EXPRESS, "memory", f"{self._profile.driver} has no memory")
            return []
        if not self._facts.sizes:
            self._fail(
                Code.SIZES_UNKNOWN,
                "memory",
                f"{percent} percent of which memory? {self._profile.driver} has published no device",
                "ask for an amount of memory, not a part, or give the inventory (--snapshot)",
            )
            return []
        if not self._shared:
            return []
        shares = _shares(self._facts.sizes, percent)
        if len(shares) > MAX_ALTERNATIVES:
            self._fail(
                Code.TOO_MANY_SIZES,
                "memory",
                f"{len(shares)} memory sizes are published, a request has room for "
                f"{MAX_ALTERNATIVES}",
                "ask for an amount of memory, not a part",
            )
            return []
        return [
            _Alternative(
                name=_size_name(size),
                selector=self._memory_is("== 0", size),
                capacity={memory: share},
            )
            for size, share in shares.items()
        ]

    def _smallest_first(self, memory: str | None, least: Quantity) -> list[_Alternative]:
        if memory is None:
            self._fail(Code.CANNOT_EXPRESS, "memory", f"{self._profile.driver} has no memory")
            return []
        enough = [size for size in _shares(self._facts.sizes or (), 100) if size >= least]
        if not enough:
            self._warn(
                Code.SMALLEST_NOT_CHOSEN,
                "memory",
                f"no MIG device of {least} or more is published yet; any such will do",
            )
            return [_Alternative(name="memory", selector=self._memory_is(">= 0", least))]
        return [
            _Alternative(name=_size_name(size), selector=self._memory_is("== 0", size))
            for size in enough[:MAX_ALTERNATIVES]
        ]

    def _memory_is(self, comparison: str, size: Quantity) -> str:
        domain, name = self._profile.qualified(self._device.memory or "")
        capacity = f"device.capacity[{quote(domain)}]"
        return (
            f"{quote(name)} in {capacity} && "
            f"{capacity}.{name}.compareTo(quantity({quote(str(size))})) {comparison}"
        )

    # --- words

    def _full_name(self, attribute: str) -> str:
        return "/".join(self._profile.qualified(attribute))

    def _present(self, attribute: str) -> str:
        domain, name = self._profile.qualified(attribute)
        return f"{quote(name)} in device.attributes[{quote(domain)}]"

    def _value(self, attribute: str) -> str:
        domain, name = self._profile.qualified(attribute)
        return f"device.attributes[{quote(domain)}].{name}"

    def _fail(self, code: Code, aspect: str, message: str, fix: str = "") -> None:
        self.findings.append(error(code, self._intent.path(aspect), message, fix))

    def _warn(self, code: Code, aspect: str, message: str) -> None:
        self.findings.append(warning(code, self._intent.path(aspect), message))


def _shares(sizes: Iterable[MemorySize], percent: int) -> dict[Quantity, Quantity]:
    """Return size to the share of it, rounded down to what may be asked for, sizes ascending."""
    shares: dict[Quantity, Quantity] = {}
    for memory in sizes:
        share = _rounded_down(memory, percent)
        known = shares.get(memory.size)
        shares[memory.size] = share if known is None else min(known, share)
    return dict(sorted(shares.items()))


def _rounded_down(memory: MemorySize, percent: int) -> Quantity:
    """Return the largest amount of the size's grid that is no more than the percentage.

    So shares which add to 100 percent fit on one device, unless they are below its smallest share.

    Source: HAMi floors to MiB. KEP-5075 rounds requests up, to `min` and a multiple of `step`, or
    to one of the valid values.
    """
    if percent == 100:
        return memory.size
    exact = memory.size.nanos * percent // 100
    if memory.values:
        within = [value for value in memory.values if value.nanos <= exact]
        return max(within, default=min(memory.values))
    step = _coarsened(memory.step)
    least = memory.min or step
    return least + step * max(0, (exact - least.nanos) // step.nanos)


def _coarsened(step: Quantity | None) -> Quantity:
    """Return a multiple of the step that is no less than one MiB."""
    mebibyte = Quantity("1Mi")
    if step is None or step.nanos <= 0:
        return mebibyte
    return step * -(-mebibyte.nanos // step.nanos)


def _size_name(size: Quantity) -> str:
    return f"memory-{str(size).lower().replace('.', '-')}"


def _contains(models: Iterable[str]) -> list[str]:
    return [f".lowerAscii().contains({quote(model)})" for model in models]


def _is_one_of(items: Iterable[str]) -> str:
    return f" in [{', '.join(quote(item) for item in items)}]"


def _as_selectors(expressions: Sequence[str]) -> tuple[DeviceSelector, ...] | None:
    return (
        tuple(DeviceSelector(cel=CelSelector(expression=expression)) for expression in expressions)
        or None
    )


def _as_capacity(amounts: Mapping[str, Quantity]) -> CapacityRequirements | None:
    return CapacityRequirements(requests=dict(sorted(amounts.items()))) if amounts else None


def _put(document: Any, path: str, value: object) -> None:
    *parents, last = path.split(".")
    for parent in parents:
        document = document.setdefault(parent, {})
    document[last] = value
