"""The device selectors of a request: the conditions that express an intent's filter."""

from collections.abc import Iterator
from typing import Final

from findings.finding import Code, Finding, error, warning
from findings.text import printable
from kube.api.resource import MAX_SELECTOR_BYTES
from kube.quantity import Quantity
from translation.compiling.conditions import Condition, Relation, Selector, select
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
            yield select("count", self.has(attribute, negated=True))
        if device_filter.mig_profile is not None:
            profiles = (device_filter.mig_profile,)
            yield from self._filter("mig_profile", attributes.mig_profile, Relation.EQUAL, profiles)
        if device_filter.interface is not None:
            name = attributes.interface if isinstance(attributes.interface, str) else None
            yield from self._filter("interface", name, Relation.EQUAL, (device_filter.interface,))
        yield from self._of_models()
        if device_filter.uuids is not None:
            yield from self._filter("uuids", attributes.uuid, Relation.ONE_OF, device_filter.uuids)
        if device_filter.not_uuids:
            uuids = device_filter.not_uuids
            yield from self._filter(
                "not_uuids", attributes.uuid, Relation.ONE_OF, uuids, negated=True
            )
        for requirement in device_filter.labels:
            yield from self._of_label(requirement)
        if device_filter.virtual_function:
            yield from self._of_virtual_functions()

    def _of_models(self) -> Iterator[Selector]:
        """Yield the selectors of product names."""
        device_filter, attribute = self._intent.filter, self._device.attributes.model
        if device_filter.models is not None:
            yield from self._filter("models", attribute, Relation.CONTAINS, device_filter.models)
        if device_filter.model_name is not None:
            names = (device_filter.model_name,)
            yield from self._filter("models", attribute, Relation.EQUAL, names)
        if device_filter.not_models:
            models = device_filter.not_models
            yield from self._filter(
                "not_models", attribute, Relation.CONTAINS, models, negated=True
            )

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
            yield from self._filter(
                "labels",
                attribute,
                Relation.ONE_OF,
                requirement.values,
                negated=requirement.negated,
            )
            return
        yield select("labels", self.has(attribute, negated=requirement.negated))

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
            yield select("virtual_function", self._equals(attribute, value))

    def _filter(
        self,
        aspect: str,
        attribute: str | None,
        relation: Relation,
        values: tuple[str, ...],
        *,
        negated: bool = False,
    ) -> Iterator[Selector]:
        """Yield the selector of devices with an attribute that has a relation to the values.

        Args:
            aspect: The aspect of the intent that requests it.
            negated: Select the other devices, and those without the attribute.
        """
        if attribute is None:
            missing = _FILTERED_BY[aspect]
            self._fail(
                Code.CANNOT_EXPRESS, aspect, f"{self._profile.driver} publishes no {missing}"
            )
            return
        selector = select(aspect, self.condition(attribute, relation, *values, negated=negated))
        length = len(selector.expression)
        if length > MAX_SELECTOR_BYTES:
            self._fail(
                Code.TOO_LONG,
                aspect,
                f"the selector would have {length} bytes, at most {MAX_SELECTOR_BYTES} are allowed",
                "name fewer devices",
            )
            return
        yield selector

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
            yield select("count", self._equals(attribute, value))
        resource = self._intent.filter.resource or ""
        names = (
            (named_devices.short_name, resource.partition("/")[2]),
            (named_devices.full_name, resource),
        )
        if isinstance(named_devices.count_attribute, str):
            yield select("count", self._equals(named_devices.count_attribute, self._intent.count))
        tests = [self._equals(attribute, text) for attribute, text in names if attribute]
        if tests:
            yield select("count", *tests)

    def condition(
        self,
        name: str,
        relation: Relation,
        *values: AttributeValue | Quantity,
        negated: bool = False,
    ) -> Condition:
        """Return a condition on one of the device's attributes or capacities."""
        domain, identifier = self._profile.qualified_name(name)
        return Condition(
            domain=domain, name=identifier, relation=relation, values=values, negated=negated
        )

    def memory_is(self, relation: Relation, *sizes: Quantity) -> Condition:
        """Return the condition that the device's memory has a relation to sizes."""
        return self.condition(self._device.memory or "", relation, *sizes)

    def has(self, attribute: str, *, negated: bool = False) -> Condition:
        """Return the condition that a device has an attribute; that it has none, if negated."""
        return self.condition(attribute, Relation.PRESENT, negated=negated)

    def full_name(self, attribute: str) -> str:
        """Return the name of an attribute with its domain."""
        return "/".join(self._profile.qualified_name(attribute))

    def _equals(self, attribute: str, value: AttributeValue) -> Condition:
        return self.condition(attribute, Relation.EQUAL, value)

    def _fail(self, code: Code, aspect: str, message: str, fix: str = "") -> None:
        self._findings.append(error(code, self._intent.path(aspect), message, fix))
