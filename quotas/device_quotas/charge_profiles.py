"""The charges of plans, remembered for limits of the same form, those of other tenants among them."""

from collections.abc import Hashable, Iterable, Sequence
from typing import Final, NamedTuple

from allocator.model.devices import NodeDevices, PublishedDevice
from allocator.model.plan import Plan
from kube.collections.least_recently_used import LeastRecentlyUsed
from quotas.device_quotas.book import QuotaBook
from quotas.device_quotas.bounds import ChargedProperties, charge_form, charged_properties
from quotas.device_quotas.charges import Charge
from quotas.device_quotas.tenants import Account

Forms = tuple[Hashable, ...]
"""The forms that tell the devices of a node apart from those of others, for each limit."""

MAX_PROFILES: Final = 64
MAX_NODES: Final = 8_192
"""Nodes whose forms are remembered, for each profile."""
MAX_PLANS: Final = 4_096
"""Plans of classes whose charges are remembered, for each profile."""


class PlanCharges(NamedTuple):
    """The charges of a plan.

    Attributes:
        plan: The plan.
        charges: The charge for each limit.
        forms: The forms of the nodes that have this charge, too; None where devices of a driver differ.
    """

    plan: Plan
    charges: tuple[Charge, ...]
    forms: Forms | None

    def is_for(self, forms: Forms) -> bool:
        """Return True if the plan of a node with these forms has this charge.

        The plan has no form where it takes no device of a driver.
        """
        return self.forms is not None and all(
            form is None or form == of_node for form, of_node in zip(self.forms, forms, strict=True)
        )


class ChargeProfile:
    """The properties that limits charge devices by; tenants with limits of the same form share it.

    Attributes:
        properties: One for each limit.
    """

    def __init__(self, properties: tuple[ChargedProperties, ...]) -> None:
        """Begin without nodes and plans."""
        self.properties = properties
        # The devices of a node are compared by identity, which is cheap, and so are plans.
        self._forms: dict[NodeDevices, Forms | None] = {}
        self._different: dict[Forms, Forms] = {}
        self._plans: dict[int, PlanCharges] = {}

    def forms(self, node: NodeDevices) -> Forms | None:
        """Return the form of all devices of each driver on a node, equal ones as one object.

        Returns:
            None where some devices of a driver differ.

        Raises:
            AnswerInterrupted: The budget does not last to evaluate the limits' selectors.
        """
        forms = self._forms.get(node, ())
        if forms == ():
            if len(self._forms) >= MAX_NODES:
                self._forms.clear()
            forms = self._forms[node] = self._find_forms(node.devices)
        return forms

    def charges(self, plan: Plan, accounts: Sequence[Account], quotas: QuotaBook) -> PlanCharges:
        """Return the charges of a plan, in accounts of this profile."""
        known_charges = self._plans.get(id(plan))
        if known_charges is not None and known_charges.plan is plan:
            return known_charges
        if len(self._plans) >= MAX_PLANS:
            self._plans.clear()
        limits = [account.limit for account in accounts]
        devices = [choice.device for choices in plan.choices for choice in choices]
        plan_charges = self._plans[id(plan)] = PlanCharges(
            plan, quotas.charges_of_plan(limits, plan.choices), self._find_forms(devices)
        )
        return plan_charges

    def _find_forms(self, devices: Iterable[PublishedDevice]) -> Forms | None:
        forms: list[Hashable] = []
        for properties in self.properties:
            of_devices = {
                charge_form(device, properties)
                for device in devices
                if device.id.driver == properties.driver and not properties.is_constant
            }
            if len(of_devices) > 1:
                return None
            forms.append(next(iter(of_devices), None))
        different_forms = tuple(forms)
        return self._different.setdefault(different_forms, different_forms)


def charge_profile(accounts: Iterable[Account]) -> ChargeProfile:
    """Return the profile of the limits of accounts."""
    properties = tuple([charged_properties(account.limit) for account in accounts])
    return _profiles.get(properties) or _new_profile(properties)


_profiles: Final = LeastRecentlyUsed[tuple[ChargedProperties, ...], ChargeProfile](MAX_PROFILES)


def _new_profile(properties: tuple[ChargedProperties, ...]) -> ChargeProfile:
    profile = _profiles[properties] = ChargeProfile(properties)
    return profile
