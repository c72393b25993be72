"""Lines of Kueue's ClusterQueues and of Volcano's Queues for quotas of other systems.

Sources: kubernetes-sigs/kueue 0.19, its Configuration (deviceClassMappings, sources with capacity, alpha) and KEP-2941
(a class has one kind of sources); volcano-sh/volcano 1.15, its design of the capacity plugin for DRA.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from kube.api.core import NAMESPACE_NAME
from kube.cel.quoting import quote
from kube.quantity import Quantity
from migration.quotas.changes import total_amount
from migration.quotas.line_amounts import line_amounts
from migration.quotas.model import (
    ClaimMeasure,
    Document,
    FoundQuota,
    MeasuredLine,
    Part,
    QuotaConversion,
)

_NO_CAPS: Final = "a queue has no caps for one request or device"
_NO_CLAIMS: Final = "a queue does not count claims"
_NO_SELECTORS: Final = (
    "it counts all devices of a class, and these are some: create a DeviceClass of their own"
)
_ONE_DIMENSION: Final = "Kueue counts a class in one way, and another line has it"
MEMORY: Final = "memory"
FLAVOR: Final = "default-flavor"
"""The ResourceFlavor of the lines that are written; a cluster may have others."""


class KueueWriter:
    """ClusterQueues, and the mapping of classes that all of them share."""

    def __init__(self, lines: Iterable[MeasuredLine]) -> None:
        """Choose the count of each class: memory if some quota has it, else another amount, else devices.

        Args:
            lines: Those of all quotas.
        """
        self._resource_of_class: dict[str, str] = {}
        self._mappings: dict[str, dict[str, Any]] = {}
        measured_lines = [(entry, entry.measure) for entry in lines if not _reason(entry)]
        for entry, measure in sorted(measured_lines, key=lambda pair: _precedence(pair[1])):
            if measure is not None:
                resource = _resource(entry, measure)
                self._resource_of_class.setdefault(measure.device_class, resource)

    @property
    def configuration(self) -> QuotaConversion:
        """Return the part of Kueue's configuration that maps the classes, once all quotas are written."""
        document = {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "resources": {"deviceClassMappings": list(self._mappings.values())},
        }
        return QuotaConversion(object="Configuration", documents=(document,) * bool(self._mappings))

    def write(
        self, quota: FoundQuota, lines: Iterable[MeasuredLine], missing: Mapping[str, str]
    ) -> QuotaConversion:
        """Return a ClusterQueue with a line for each line of a quota.

        Args:
            lines: Its lines, measured.
            missing: Lines that measure nothing to the reason.
        """
        not_convertible = {**quota.dropped, **missing}
        converted: dict[str, str] = {}
        entries: dict[str, list[MeasuredLine]] = {}
        for entry in lines:
            measure, reason = entry.measure, _reason(entry)
            if measure is None or reason:
                not_convertible[entry.line.name] = reason
                continue
            resource = _resource(entry, measure)
            if self._resource_of_class[measure.device_class] != resource:
                not_convertible[entry.line.name] = _ONE_DIMENSION
                continue
            self._map(resource, measure)
            # All classes of a mapping share the amount of the line.
            whole = replace(entry, amount=entry.line_amount, beside=0)
            entries.setdefault(resource, []).append(whole)
            converted[entry.line.name] = f"{resource} of ClusterQueue {quota.name}"
        amounts = {resource: total_amount(own) for resource, own in entries.items()}
        return QuotaConversion(
            object=quota.object,
            counts_pods=quota.is_core,
            converted=converted,
            not_convertible={
                line: why for line, why in not_convertible.items() if line not in converted
            },
            documents=(_cluster_queue(quota, amounts),) if amounts else (),
        )

    def _map(self, resource: str, measure: ClaimMeasure) -> None:
        mapping = self._mappings.setdefault(resource, _mapping(resource, measure))
        if measure.device_class not in mapping["deviceClassNames"]:
            mapping["deviceClassNames"].append(measure.device_class)


def _precedence(measure: ClaimMeasure | None) -> int:
    """Return the place of a measure: a number of shares says less than their cores, and these less than their memory."""
    capacity = measure.capacity if measure is not None else ""
    return 2 if not capacity else 1 if capacity != MEMORY else 0


def _resource(entry: MeasuredLine, measure: ClaimMeasure) -> str:
    """Return the resource of a ClusterQueue that a line becomes."""
    return f"{measure.capacity}.{measure.driver}" if measure.capacity else entry.line.key


def to_volcano(
    quota: FoundQuota, lines: Iterable[MeasuredLine], missing: Mapping[str, str]
) -> QuotaConversion:
    """Return a Queue with a capability that counts claims.

    Args:
        lines: Its lines, measured.
        missing: Lines that measure nothing to the reason.
    """
    lines_converted = line_amounts(
        quota, lines, missing, target="Queue", name_of=_dimension, reason_of=_reason
    )
    document = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": quota.name},
        "spec": {
            "capability": {name: str(amount) for name, amount in lines_converted.amounts.items()}
        },
    }
    return QuotaConversion(
        object=quota.object,
        counts_pods=quota.is_core,
        converted=lines_converted.converted,
        not_convertible=lines_converted.not_convertible,
        documents=(document,) if lines_converted.amounts else (),
    )


def _dimension(measure: ClaimMeasure) -> str:
    """Return the resource of a Queue that counts a measure."""
    prefix = f"{measure.capacity}." if measure.capacity else ""
    return f"{prefix}deviceclass/{measure.device_class}"


def _reason(entry: MeasuredLine) -> str:
    """Explain that a queue has no line for a measure; empty if it has one."""
    if entry.measure is None:
        return _NO_CLAIMS
    if entry.line.part is not Part.TOTAL:
        return _NO_CAPS
    return _NO_SELECTORS if entry.measure.selectors else ""


def _mapping(resource: str, measure: ClaimMeasure) -> dict[str, Any]:
    mapping: dict[str, Any] = {"name": resource, "deviceClassNames": []}
    if measure.capacity:
        expression = f"device.driver == {quote(measure.driver)}"
        mapping["sources"] = [
            {
                "capacity": {
                    "name": measure.capacity,
                    "driver": measure.driver,
                    "deviceSelector": {"cel": {"expression": expression}},
                }
            }
        ]
    return mapping


def _cluster_queue(quota: FoundQuota, amounts: Mapping[str, Quantity]) -> Document:
    names = list(quota.namespaces)
    expressions = [{"key": NAMESPACE_NAME, "operator": "In", "values": names}]
    lines = [{"name": name, "nominalQuota": str(amount)} for name, amount in amounts.items()]
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": quota.name},
        "spec": {
            **({"namespaceSelector": {"matchExpressions": expressions}} if names else {}),
            "resourceGroups": [
                {
                    "coveredResources": list(amounts),
                    "flavors": [{"name": FLAVOR, "resources": lines}],
                }
            ],
        },
    }
