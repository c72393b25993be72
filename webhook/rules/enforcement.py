"""What is done about errors: denied, warned of, or nothing.

A namespace says it with its label, for all rules. A cluster and its drivers say it by configuration,
for what only the inventory forbids: such a verdict is as good as what drivers publish.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec


class Enforcement(StrEnum):
    """The values of the namespace's label, and of the configuration."""

    DENY = "deny"
    WARN = "warn"
    OFF = "off"


class Configured(msgspec.Struct, frozen=True, kw_only=True):
    """What is configured of verdicts about the inventory.

    Attributes:
        cluster: Where the namespace says nothing.
        drivers: Name of a driver to what is done about verdicts on its devices at most.
    """

    cluster: Enforcement = Enforcement.DENY
    drivers: Mapping[str, Enforcement] = {}

    def of(self, drivers: Iterable[str], label: str | None) -> tuple[Enforcement, str]:
        """Return what is done about a verdict, and why no more than that; nothing where it is denied.

        Args:
            drivers: Whose devices the verdict is about.
            label: Of the namespace; None where it has none.

        >>> lenient = Configured(cluster=Enforcement.WARN)
        >>> lenient.of([], None)
        (<Enforcement.WARN: 'warn'>, 'the cluster is configured to warn')
        >>> lenient.of([], "deny")
        (<Enforcement.DENY: 'deny'>, '')
        """
        found, why = self.cluster, "the cluster is configured to warn"
        if label in set(Enforcement):
            found, why = Enforcement(label), "the namespace wants to be warned"
        for name in sorted(drivers):
            wanted = self.drivers.get(name, Enforcement.DENY)
            if _LENIENCE[wanted] > _LENIENCE[found]:
                found, why = wanted, f"driver {name} is configured to warn"
        return found, why if found is Enforcement.WARN else ""


_LENIENCE = {Enforcement.DENY: 0, Enforcement.WARN: 1, Enforcement.OFF: 2}
