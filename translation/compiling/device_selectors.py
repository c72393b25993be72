"""The device selectors of a request, as CEL expressions.

User input reaches CEL only as quoted literals, and every attribute is tested for presence first,
because a CEL error ends the whole scheduling attempt.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from findings.finding import Code, Finding, error, warning
from findings.text import printable
from kube.api.resource import MAX_SELECTOR_BYTES, CelSelector, DeviceSelector
from kube.cel.quoting import quote
from kube.quantity import Quantity
from translation.model.intents import Intent, LabelRequirement
from translation.profiles.profile import AttributeValue, DeviceProfile, NamedDevices, Profile

_FILTERED_BY: Final = {
    "interface": "names of interfaces",
    "mig_profile": "MIG profiles",
    "models": "product names",
    "not_models": "product names",
    "uuids": "UUIDs",
    "not_uuids": "UUIDs",
}


class Selector(NamedTuple):
    """An expression, and the aspect of the intent that it expresses."""

    expression: str
    aspect: str


def as_selectors(expressions: Sequence[str]) -> tuple[DeviceSelector, ...] | None:
    """Return expressions as selectors of a request; None without any."""
    return (
        tuple(DeviceSelector(cel=CelSelector(expression=expression)) for expression in expressions)
        or None
    )


class SelectorCompiler:
    """Compiles the filter of an intent to selectors, and adds findings to a list."""

    def __init__(
        self, profile: Profile, device: DeviceProfile, intent: Intent, findings: list[Finding]
    ) -> None:
        self._profile = profile
        self._device = device
        self._intent = intent
        self._findings = findings

    def of_filter(self) -> Iterator[Selector]:
        """Yield the selectors of the intent's filter."""
        device_filter = self._intent.filter
        attributes = self._device.attributes
        for attribute in self._device.lacks:
            yield Selector(f"!({self._present(attribute)})", "count")
        if device_filter.mig_profile is not None:
            is_profile = f" == {quote(device_filter.mig_profile)}"
            yield from self._filter("mig_profile", attributes.mig_profile, is_profile)
        if device_filter.interface is not None:
            name = attributes.interface if isinstance(attributes.interface, str) else None
            yield from self._filter("interface", name, f" == {quote(device_filter.interface)}")
        if device_filter.models is not None:
            yield from self._filter(
                "models", attributes.model, *_contains_any(device_filter.models)
            )
        if device_filter.not_models:
            contains = _contains_any(device_filter.not_models)
            yield from self._filter("not_models", attributes.model, *contains, negated=True)
        if device_filter.uuids is not None:
            yield from self._filter("uuids", attributes.uuid, _is_one_of(device_filter.uuids))
        if device_filter.not_uuids:
            is_one_of = _is_one_of(device_filter.not_uuids)
            yield from self._filter("not_uuids", attributes.uuid, is_one_of, negated=True)
        for requirement in device_filter.labels:
            yield from self._of_label(requirement)
        if device_filter.virtual_function:
            yield from self._of_virtual_functions()

    def _of_label(self, requirement: LabelRequirement) -> Iterator[Selector]:
        """Yield the selector of devices that meet a requirement on a label."""
        attribute = (self._device.labels or {}).get(requirement.key)
        if attribute is None:
            label = printable(requirement.key)
            self._fail(
                Code.CANNOT_EXPRESS,
                "labels",
                f"the hint selects by label {label} of Koordinator's Device objects, and the profile of "
                f"{self._profile.driver} names no attribute for it",
                f"name the attribute with its value under devices.{self._intent.kind}.labels in a profile",
            )
            return
        if requirement.values is not None:
            test = _is_one_of(requirement.values)
            yield from self._filter("labels", attribute, test, negated=requirement.negated)
            return
        present = self._present(attribute)
        yield Selector(f"!({present})" if requirement.negated else present, "labels")

    def _of_virtual_functions(self) -> Iterator[Selector]:
        """Yield the selectors of virtual functions, or a finding if a profile does not define them."""
        where = self._device.virtual_functions or {}
        if not where:
            self._findings.append(
                warning(
                    Code.POLICY_DROPPED,
                    self._intent.path("virtual_function"),
                    "vfSelector: the DeviceClass decides whether devices are virtual functions, as the profile "
                    f"of {self._profile.driver} does not say which are; say it under "
                    f"devices.{self._intent.kind}.virtualFunctions",
                )
            )
        for attribute, value in sorted(where.items()):
            yield Selector(self._equals(attribute, value), "virtual_function")

    def _filter(
        self, aspect: str, attribute: str | None, *tests: str, negated: bool = False
    ) -> Iterator[Selector]:
        """Yield the selector of devices with an attribute that passes any of the tests.

        Args:
            aspect: The aspect of the intent that requests it.
            tests: The tests that follow the value in an expression.
            negated: Select the other devices, and those without the attribute.
        """
        if attribute is None:
            missing = _FILTERED_BY[aspect]
            self._fail(
                Code.CANNOT_EXPRESS, aspect, f"{self._profile.driver} publishes no {missing}"
            )
            return
        value = self._value(attribute)
        any_of = " || ".join(f"{value}{test}" for test in tests)
        passes = f"({any_of})" if len(tests) > 1 else any_of
        expression = f"{self._present(attribute)} && {passes}"
        expression = f"!({expression})" if negated else expression
        if len(expression) > MAX_SELECTOR_BYTES:
            self._fail(
                Code.TOO_LONG,
                aspect,
                f"the selector would have {len(expression)} bytes, at most {MAX_SELECTOR_BYTES} are "
                "allowed",
                "name fewer devices",
            )
            return
        yield Selector(expression, aspect)

    def named_devices(self) -> NamedDevices:
        """Return the devices that the legacy resource name means; without one, all of the kind."""
        resource = self._intent.filter.resource
        if resource is None:
            return NamedDevices()
        match = self._device.find_resource(resource)
        if match is None:
            self._fail(
                Code.CANNOT_EXPRESS,
                "count",
                f"the profile of {self._profile.driver} does not define the devices of "
                f"{printable(resource)}",
                "define the name under resources in a profile of your own",
            )
            return NamedDevices()
        pattern, named_devices = match
        if pattern != resource and not named_devices.distinguishes_names:
            self._findings.append(
                warning(
                    Code.NOT_PUBLISHED_BY_DRIVER,
                    self._intent.path("count"),
                    f"{self._profile.driver} does not publish which devices belong to "
                    f"{printable(resource)}: the claim accepts any device of {pattern}",
                )
            )
        return named_devices

    def matched_devices(self) -> NamedDevices:
        """Return the devices that the legacy resource name means, without a finding."""
        match = self._device.find_resource(self._intent.filter.resource or "")
        return NamedDevices() if match is None else match[1]

    def of_name(self, named_devices: NamedDevices) -> Iterator[Selector]:
        """Yield the selectors of the devices that the legacy resource name means."""
        for attribute, value in sorted(named_devices.where.items()):
            yield Selector(self._equals(attribute, value), "count")
        resource = self._intent.filter.resource or ""
        names = (
            (named_devices.short_name, resource.partition("/")[2]),
            (named_devices.full_name, resource),
        )
        if isinstance(named_devices.count_attribute, str):
            yield Selector(self._equals(named_devices.count_attribute, self._intent.count), "count")
        tests = [self._equals(attribute, text) for attribute, text in names if attribute]
        if tests:
            either = tests[0] if len(tests) == 1 else " || ".join(f"({test})" for test in tests)
            yield Selector(either, "count")

    def memory_is(self, comparison: str, size: Quantity) -> str:
        """Return the expression that compares the device's memory with a size.

        Args:
            comparison: Operator and number that the result of `compareTo` is compared with.
        """
        return self.capacity_is(self._device.memory or "", comparison, size)

    def capacity_is(self, capacity_name: str, comparison: str, size: Quantity) -> str:
        """Return the expression that compares one of the device's capacities with an amount."""
        domain, name = self._profile.qualified_name(capacity_name)
        capacity = f"device.capacity[{quote(domain)}]"
        return (
            f"{quote(name)} in {capacity} && "
            f"{capacity}.{name}.compareTo(quantity({quote(str(size))})) {comparison}"
        )

    def has(self, attribute: str) -> str:
        """Return the expression that a device has an attribute."""
        return self._present(attribute)

    def full_name(self, attribute: str) -> str:
        """Return the name of an attribute with its domain."""
        return "/".join(self._profile.qualified_name(attribute))

    def _equals(self, attribute: str, value: AttributeValue) -> str:
        literal = quote(value) if isinstance(value, str) else str(value).lower()
        return f"{self._present(attribute)} && {self._value(attribute)} == {literal}"

    def _present(self, attribute: str) -> str:
        domain, name = self._profile.qualified_name(attribute)
        return f"{quote(name)} in device.attributes[{quote(domain)}]"

    def _value(self, attribute: str) -> str:
        domain, name = self._profile.qualified_name(attribute)
        return f"device.attributes[{quote(domain)}].{name}"

    def _fail(self, code: Code, aspect: str, message: str, fix: str = "") -> None:
        self._findings.append(error(code, self._intent.path(aspect), message, fix))


def _contains_any(models: Iterable[str]) -> list[str]:
    """Return tests of a text value, one per model: it contains the model, ignoring case."""
    return [f".lowerAscii().contains({quote(model)})" for model in models]


def _is_one_of(items: Iterable[str]) -> str:
    """Return the test that a text value is one of some items."""
    return f" in [{', '.join(quote(item) for item in items)}]"
