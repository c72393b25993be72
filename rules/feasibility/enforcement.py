"""Enforcement of errors: deny, warn, or off.

A namespace sets it for all rules with its label. A cluster and its drivers set it by configuration
for verdicts about the inventory only, since such a verdict is as good as what drivers publish.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

import msgspec

NAMESPACE_WARNS: Final = "the namespace is labelled to warn"


class Enforcement(StrEnum):
    """A value of the namespace label and of the configuration."""

    DENY = "deny"
    WARN = "warn"
    OFF = "off"


class EnforcementSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The configured enforcement of verdicts about the inventory.

    Attributes:
        cluster: The enforcement for namespaces without the label.
        drivers: Name of a driver to the strictest enforcement of verdicts about its devices.
    """

    cluster: Enforcement = Enforcement.DENY
    drivers: Mapping[str, Enforcement] = {}

    def effective(self, drivers: Iterable[str], label: str | None) -> tuple[Enforcement, str]:
        """Return the enforcement of a verdict, and the reason if it is a warning.

        Args:
            drivers: Drivers of the devices that the verdict is about.
            label: Value of the namespace's label; None without one.

        >>> lenient = EnforcementSettings(cluster=Enforcement.WARN)
        >>> lenient.effective([], None)
        (<Enforcement.WARN: 'warn'>, 'the cluster is configured to warn')
        >>> lenient.effective([], "deny")
        (<Enforcement.DENY: 'deny'>, '')
        """
        enforcement, reason = self.cluster, "the cluster is configured to warn"
        if label in set(Enforcement):
            enforcement, reason = Enforcement(label), NAMESPACE_WARNS
        for name in sorted(drivers):
            of_driver = self.drivers.get(name, Enforcement.DENY)
            if _LENIENCE[of_driver] > _LENIENCE[enforcement]:
                enforcement, reason = of_driver, f"driver {name} is configured to warn"
        return enforcement, reason if enforcement is Enforcement.WARN else ""


_LENIENCE: Final = {Enforcement.DENY: 0, Enforcement.WARN: 1, Enforcement.OFF: 2}
