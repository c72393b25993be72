"""The fields and API versions that a version of Kubernetes no longer serves. Pure.

Source: pkg/features/kube_features.go of Kubernetes 1.37.1, which keeps the history of each gate, and the
generated lifecycles of k8s.io/api v0.37.1, resource.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from answers.model.findings import reference
from answers.model.kubernetes_version import (
    OLDEST_KUBERNETES,
    SEPARATE_COUNTERS,
    Version,
    format_version,
)
from findings.finding import Severity
from kube.api.workloads import DAEMON_SET
from kube.manifests.source import SourceObject
from migration.upgrade.model import UpgradeCode, UpgradeFinding, finding

NEWEST_TESTED: Final = (1, 37)
BRIDGE_VERSION: Final = (1, 37)
"""The bridge is a kube-scheduler of this version."""
DRIVER_SINCE: Final = (1, 36)
"""The node driver writes `status.devices` with rights that exist since."""
TESTED: Final = (OLDEST_KUBERNETES, (1, 35), (1, 36), NEWEST_TESTED)
"""The versions on which stories of translation, webhook and rules were run, see docs/operations.md."""

GATES: Final[Mapping[str, Mapping[int, bool | None]]] = {
    "DRAPrioritizedList": {34: True, 35: True, 36: True, 37: True},
    "DRAConsumableCapacity": {34: False, 35: False, 36: True, 37: True},
    "DRAExtendedResource": {34: False, 35: False, 36: True, 37: True},
    "DRAPartitionableDevices": {34: False, 35: False, 36: True, 37: True},
    "DRADeviceTaints": {34: False, 35: False, 36: True, 37: True},
    "DRADeviceTaintRules": {34: None, 35: False, 36: False, 37: True},
    "DRADeviceBindingConditions": {34: False, 35: False, 36: True, 37: True},
    "DRADeviceCompatibilityGroups": {34: None, 35: None, 36: None, 37: False},
}
"""Feature gate to the minor version to its default; None where the version does not have it."""

DEFECTS: Final[Mapping[tuple[str, int], str]] = {
    (
        "DRAConsumableCapacity",
        34,
    ): "looks at the capacity of another device than the one that it would "
    "allocate: pods stay pending although there are devices for them, and a request for more devices than "
    "a ResourceSlice has ends it",
}
"""Feature gate and minor version to what kube-scheduler does wrong there if the gate is on.

Source: allocateDevice in k8s.io/dynamic-resource-allocation v0.34.4, structured/internal/experimental: the
number of a device in its request is taken for its number in the slice. Upstream's issue
kubernetes/kubernetes#133705, which 1.35 has solved.
"""

REMOVED: Final[Mapping[tuple[str, str], tuple[Version, Version]]] = {
    ("resource.k8s.io/v1alpha3", "DeviceTaintRule"): ((1, 36), (1, 39)),
    **{
        ("resource.k8s.io/v1beta1", kind): ((1, 35), (1, 38))
        for kind in ("DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice")
    },
    **{
        ("resource.k8s.io/v1beta2", kind): ((1, 36), (1, 39))
        for kind in ("DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice")
    },
    ("resource.k8s.io/v1beta2", "DeviceTaintRule"): ((1, 39), (1, 42)),
}
"""(apiVersion, kind) to the versions in which it is deprecated, and not served any more."""


def check_kubernetes(
    objects: Sequence[SourceObject],
    target: Version,
    gates: Mapping[str, bool],
    requested_apis: Mapping[tuple[str, str], Version],
    namespace: str,
) -> Iterator[UpgradeFinding]:
    """Yield the findings about a version of Kubernetes.

    Args:
        objects: The cluster's objects, and manifests.
        target: The version.
        gates: The gates that are set as the cluster has them, independent of the version's
            defaults.
        requested_apis: (apiVersion, resource) of deprecated APIs that the API server was asked for, to
            the version that does not serve them.
        namespace: The namespace for objects that name none.
    """
    yield from _check_support(objects, target, namespace)
    yield from _check_gates(objects, target, gates, namespace)
    yield from _check_layouts(objects, target, namespace)
    yield from _check_apis(objects, target, namespace)
    yield from _check_requested(target, requested_apis)


def _check_support(
    objects: Sequence[SourceObject], target: Version, namespace: str
) -> Iterator[UpgradeFinding]:
    name = format_version(target)
    if target < OLDEST_KUBERNETES:
        yield finding(
            Severity.ERROR,
            UpgradeCode.KUBERNETES_TOO_OLD,
            f"Kubernetes {name} does not serve resource.k8s.io/v1",
            f"use Kubernetes {format_version(OLDEST_KUBERNETES)} or newer",
        )
    elif target not in TESTED:
        yield finding(
            Severity.WARNING,
            UpgradeCode.KUBERNETES_NOT_TESTED,
            "this version of Drawbridge is tested with Kubernetes "
            f"{_tested_names()}, not with {name}",
            "look for a release of Drawbridge for that version, and try mode Shadow first",
        )
    owners = [
        reference(source, namespace)
        for source in objects
        if source.kind == "AllocatorOwnership" and (_spec(source).get("drivers") or ())
    ]
    if owners and target != BRIDGE_VERSION:
        yield finding(
            Severity.ERROR,
            UpgradeCode.COMPONENT_NEEDS_KUBERNETES,
            f"the bridge is a kube-scheduler of {format_version(BRIDGE_VERSION)} and runs with that "
            "version only, and it owns drivers",
            "drawbridge bridge release DRIVER before the upgrade, or a bridge for that version",
            owners,
        )
    drivers = [
        reference(source, namespace)
        for source in objects
        if source.kind == DAEMON_SET and source.name == "drawbridge-driver"
    ]
    if drivers and target < DRIVER_SINCE:
        yield finding(
            Severity.ERROR,
            UpgradeCode.COMPONENT_NEEDS_KUBERNETES,
            f"the node driver needs Kubernetes {format_version(DRIVER_SINCE)}",
            "uninstall it first",
            drivers,
        )


def _tested_names() -> str:
    """Return the tested versions in words."""
    *others, last = map(format_version, TESTED)
    return f"{', '.join(others)} and {last}"


def _check_layouts(
    objects: Sequence[SourceObject], target: Version, namespace: str
) -> Iterator[UpgradeFinding]:
    """Yield slices with devices beside counters; only 1.34 accepts them.

    Source: ValidateResourceSlice of Kubernetes 1.34.4 and 1.35.4.
    """
    mixed = [
        reference(source, namespace)
        for source in objects
        if source.kind == "ResourceSlice"
        and all(_spec(source).get(name) is not None for name in ("devices", "sharedCounters"))
    ]
    if mixed and target >= SEPARATE_COUNTERS:
        yield finding(
            Severity.ERROR,
            UpgradeCode.LAYOUT_REJECTED,
            f"Kubernetes {format_version(SEPARATE_COUNTERS)} and newer reject devices and "
            "sharedCounters in one ResourceSlice",
            "upgrade their driver to a version that publishes counter sets in slices of their own",
            mixed,
        )


# --- feature gates --------------------------------------------------------------------------------


def _check_gates(
    objects: Sequence[SourceObject], target: Version, gates: Mapping[str, bool], namespace: str
) -> Iterator[UpgradeFinding]:
    """Yield an error for each gate that is off or defective, and has fields in use."""
    for gate, uses in _USES.items():
        is_on = gates.get(gate, default_gate(gate, target))
        if is_on and not find_defect(gate, target):
            continue
        users = [reference(source, namespace) for source in objects if uses(source)]
        if users:
            yield _defective(gate, target, users) if is_on else _off(gate, target, users)


def default_gate(gate: str, version: Version) -> bool | None:
    """Return True if a gate is on by default in a version; None if the version does not have it."""
    defaults = GATES[gate]
    newest = max(defaults)
    return defaults.get(version[1], defaults[newest] if version[1] > newest else None)


def find_defect(gate: str, version: Version | None) -> str:
    """Return kube-scheduler's defect with a gate; empty if none is known, or the version is not."""
    return DEFECTS.get((gate, version[1]), "") if version is not None else ""


def describe_defect(gate: str, version: Version | None) -> str:
    """Return the sentence on kube-scheduler's defect with a gate; empty as in `find_defect`."""
    defect = find_defect(gate, version)
    if version is None or not defect:
        return ""
    name = format_version(version)
    return f"with the feature gate {gate}, kube-scheduler of Kubernetes {name} {defect}"


def _defective(gate: str, target: Version, users: Sequence[str]) -> UpgradeFinding:
    return finding(
        Severity.ERROR,
        UpgradeCode.GATE_DEFECTIVE,
        describe_defect(gate, target),
        "use a newer version of Kubernetes",
        users,
    )


def _off(gate: str, target: Version, users: Sequence[str]) -> UpgradeFinding:
    default = default_gate(gate, target)
    state = "does not have" if default is None else "has off"
    defect = find_defect(gate, target)
    if default is None:
        fix = "use a version that has it"
    elif defect:
        fix = (
            f"use a newer version of Kubernetes; with the gate, the scheduler of this one {defect}"
        )
    else:
        fix = f"turn on {gate} in API server, scheduler and kubelets"
    return finding(
        Severity.ERROR,
        UpgradeCode.FEATURE_GATE_OFF,
        f"Kubernetes {format_version(target)} {state} the feature gate {gate} "
        f"{'' if default is None else 'by default '}and {_LOSSES[gate]}",
        fix,
        users,
    )


_LOSSES: Final = {
    "DRAConsumableCapacity": "drops the capacity of requests: claims of shares get whole devices",
    "DRAExtendedResource": "drops extendedResourceName: pods with these resource names are pending",
    "DRAPartitionableDevices": "drops the counters of devices: overlapping partitions are allocated "
    "together",
    "DRADeviceTaints": "drops taints: devices in ill health are allocated",
    "DRADeviceTaintRules": "does not serve DeviceTaintRules",
    "DRADeviceBindingConditions": "drops binding conditions: pods start before their devices are "
    "attached",
    "DRADeviceCompatibilityGroups": "drops compatibility groups: devices are used together that must "
    "not be",
}


def _spec(source: SourceObject) -> Mapping[str, Any]:
    spec = source.document.get("spec")
    return spec if isinstance(spec, Mapping) else {}


def _list(value: object) -> list[Mapping[str, Any]]:
    entries = value if isinstance(value, Sequence) and not isinstance(value, str) else ()
    return [entry for entry in entries if isinstance(entry, Mapping)]


def _requests(source: SourceObject) -> Iterator[Mapping[str, Any]]:
    """Yield every request and alternative of a claim or a template."""
    spec = _spec(source)
    if source.kind == "ResourceClaimTemplate":
        inner = spec.get("spec")
        spec = inner if isinstance(inner, Mapping) else {}
    elif source.kind != "ResourceClaim":
        return
    devices = spec.get("devices")
    for request in _list(devices.get("requests")) if isinstance(devices, Mapping) else ():
        exactly = request.get("exactly")
        # In v1beta1 the fields are those of the request itself.
        yield exactly if isinstance(exactly, Mapping) else request
        yield from _list(request.get("firstAvailable"))


def _devices(source: SourceObject) -> Iterator[Mapping[str, Any]]:
    if source.kind == "ResourceSlice":
        for device in _list(_spec(source).get("devices")):
            basic = device.get("basic")
            yield basic if isinstance(basic, Mapping) else device


def _has_device_field(field: str) -> Callable[[SourceObject], bool]:
    return lambda source: any(device.get(field) for device in _devices(source))


_USES: Final[Mapping[str, Callable[[SourceObject], bool]]] = {
    "DRAConsumableCapacity": lambda source: any(
        request.get("capacity") for request in _requests(source)
    ),
    "DRAExtendedResource": lambda source: (
        source.kind == "DeviceClass" and bool(_spec(source).get("extendedResourceName"))
    ),
    "DRAPartitionableDevices": _has_device_field("consumesCounters"),
    "DRADeviceTaints": _has_device_field("taints"),
    "DRADeviceTaintRules": lambda source: source.kind == "DeviceTaintRule",
    "DRADeviceBindingConditions": _has_device_field("bindingConditions"),
    "DRADeviceCompatibilityGroups": lambda source: any(
        counter.get("compatibilityGroups")
        for device in _devices(source)
        for counter in _list(device.get("consumesCounters"))
    ),
}
"""Feature gate to whether an object has a field of it."""


_SHOWS: Final = {"DRAConsumableCapacity": _has_device_field("allowMultipleAllocations")}
"""Feature gate to whether an object has a field of it that nobody has to give up where it is off."""


def shows_gate(gate: str, source: SourceObject) -> bool:
    """Return True if an object has a field that the API server drops if a feature gate is off."""
    return _USES[gate](source) or (gate in _SHOWS and _SHOWS[gate](source))


# --- API versions ---------------------------------------------------------------------------------


def _check_apis(
    objects: Iterable[SourceObject], target: Version, namespace: str
) -> Iterator[UpgradeFinding]:
    """Yield a finding for each API version that objects are written in."""
    users: dict[tuple[str, str], list[str]] = {}
    for source in objects:
        users.setdefault((source.api_version, source.kind), []).append(reference(source, namespace))
    for (api_version, kind), names in sorted(users.items()):
        if (api_version, kind) in REMOVED:
            deprecated, removed = REMOVED[api_version, kind]
            if target >= deprecated:
                yield _api_finding(f"{kind} of {api_version}", target, removed, names)


def _check_requested(
    target: Version, requested_apis: Mapping[tuple[str, str], Version]
) -> Iterator[UpgradeFinding]:
    """Yield a finding for each deprecated API that clients of the cluster call."""
    for (api_version, resource), removed in sorted(requested_apis.items()):
        if api_version.startswith("resource.k8s.io/") or target >= removed:
            what = f"{resource} of {api_version}, which a client of this cluster calls,"
            yield _api_finding(what, target, removed, ())


def _api_finding(
    what: str, target: Version, removed: Version, names: Iterable[str]
) -> UpgradeFinding:
    is_removed = target >= removed
    verb = "is not served" if is_removed else "is deprecated, and not served"
    return finding(
        Severity.ERROR if is_removed else Severity.WARNING,
        UpgradeCode.API_REMOVED if is_removed else UpgradeCode.API_DEPRECATED,
        f"{what} {verb} from Kubernetes {format_version(removed)} on",
        "write and call resource.k8s.io/v1"
        if "resource.k8s.io" in what
        else "see the deprecation guide of Kubernetes",
        names,
    )


_REQUESTED: Final = re.compile(
    r'^apiserver_requested_deprecated_apis\{group="([\w.-]*)",removed_release="(\d{1,3})\.(\d{1,3})",'
    r'resource="([\w.-]+)",subresource="[\w./-]*",version="(\w+)"\} 1$',
    re.MULTILINE | re.ASCII,
)


def parse_requested_apis(metrics: str) -> Mapping[tuple[str, str], Version]:
    """Return the deprecated APIs that the API server was asked for since it started.

    Source: k8s.io/apiserver v0.37.1, pkg/endpoints/metrics: apiserver_requested_deprecated_apis.

    >>> parse_requested_apis(
    ...     'apiserver_requested_deprecated_apis{group="resource.k8s.io",removed_release="1.38",'
    ...     'resource="resourceclaims",subresource="",version="v1beta1"} 1'
    ... )
    {('resource.k8s.io/v1beta1', 'resourceclaims'): (1, 38)}
    """
    return {
        (f"{group}/{version}" if group else version, resource): (int(major), int(minor))
        for group, major, minor, resource, version in _REQUESTED.findall(metrics)
    }


def gates_after(
    gates: Mapping[str, bool], current: Version | None, target: Version
) -> Mapping[str, bool]:
    """Return the gates of a cluster after an upgrade, independent of their defaults.

    Those that differ from the defaults of the present version were set by somebody, and stay so.

    Args:
        gates: The gates that the API server reports now.
        current: Its version.
        target: Its version after the upgrade.
    """
    if current is None or current == target:
        return gates
    return {
        gate: is_on
        for gate, is_on in gates.items()
        if gate in GATES and GATES[gate].get(current[1]) not in {None, is_on}
    }
