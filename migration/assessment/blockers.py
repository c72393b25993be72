"""The problems to solve before a cluster can move."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from answers.model.kubernetes_version import OLDEST_KUBERNETES, format_version, parse_version
from findings.finding import Code
from kube.api.core import Node
from migration.assessment.capacity import Capacity
from migration.assessment.node_devices import REGISTER
from migration.assessment.outcomes import AssessedWorkload, Outcome

OLDEST_NVIDIA_DRIVER: Final = 580
"""Source: NVIDIA's DRA driver for GPUs, prerequisites of release 25.12."""
NEEDED: Final = (
    "nodes",
    "pods",
    "namespaces",
    "deviceclasses",
    "resourceslices",
    "resourceclaims",
)
"""Resources without which nobody knows what a cluster has."""
UNREAD_REGISTER: Final = f"the annotation {REGISTER} cannot be read"
READ_REGISTER: Final = "HAMi's device plugin writes it every 30 seconds: look at its log on the node, then take the snapshot again"
DRIVER_LABELS: Final = ("nvidia.com/cuda.driver-version.major", "nvidia.com/cuda.driver.major")
"""Labels of GPU feature discovery; the second is the older name."""


class Blocker(msgspec.Struct, frozen=True, kw_only=True):
    """A reason not to move yet.

    Attributes:
        objects: `Kind/namespace/name`; `Node//name` for nodes.
    """

    code: str
    message: str
    fix: str
    objects: tuple[str, ...]


def find_blockers(
    workloads: Iterable[AssessedWorkload],
    capacity: Capacity,
    nodes: Iterable[Node],
    version: str,
    unreadable: Iterable[str],
    *,
    unread_nodes: Iterable[str] = (),
    unserved: Collection[str] = (),
) -> Iterator[Blocker]:
    """Yield the blockers, those of the cluster first.

    Args:
        nodes: The nodes with devices of a legacy system.
        version: The API server's version; empty if it is not known.
        unreadable: Resources that could not be read.
        unread_nodes: The nodes whose devices HAMi has registered in a form that cannot be read.
        unserved: The workloads that no node would serve, however empty it was.
    """
    yield from check_version(version)
    yield from check_readable(unreadable)
    if references := tuple(f"Node//{name}" for name in unread_nodes):
        yield Blocker(
            code="registerNotRead",
            message=f"{UNREAD_REGISTER}, so their devices are not known",
            fix=READ_REGISTER,
            objects=references,
        )
    yield from _check_drivers(nodes)
    yield from _check_refused(workloads)
    yield from _check_capacity(capacity, unserved)


def _check_capacity(capacity: Capacity, unserved: Collection[str]) -> Iterator[Blocker]:
    """Yield a blocker for pods that no node would ever serve, and one for those that find devices in use."""
    never = {name: pods for name, pods in capacity.unplaced.items() if name in unserved}
    others = {name: pods for name, pods in capacity.unplaced.items() if name not in unserved}
    if never:
        pods = sum(never.values())
        yield Blocker(
            code="notPlaced",
            message=f"{pods} of {capacity.pods} pods would find no node that serves them, even if all were empty",
            fix="drawbridge simulate tells why for each; have a driver publish such devices on the nodes that "
            "they may use, or change their request (to a share of a device, for example) or their node selector",
            objects=tuple(never),
        )
    if others:
        pods = sum(others.values())
        yield Blocker(
            code="notPlaced",
            message=f"{pods} of {capacity.pods} pods would find no node with devices, CPU and memory",
            fix="drawbridge simulate tells why for each; free devices, or add nodes",
            objects=tuple(others),
        )


def check_version(version: str) -> Iterator[Blocker]:
    """Yield a blocker if a cluster serves no ResourceClaims."""
    parsed_version = parse_version(version)
    if parsed_version is not None and parsed_version < OLDEST_KUBERNETES:
        yield Blocker(
            code="kubernetesTooOld",
            message=f"Kubernetes {format_version(parsed_version)} does not serve resource.k8s.io/v1",
            fix=f"upgrade to Kubernetes {format_version(OLDEST_KUBERNETES)} or newer; for shares of "
            "devices to 1.36 or newer",
            objects=(),
        )


def check_readable(unreadable: Iterable[str]) -> Iterator[Blocker]:
    """Yield a blocker if required objects could not be read: the answer would be a guess."""
    missing = set(unreadable)
    names = [name for name in NEEDED if name in missing]
    if names:
        yield Blocker(
            code="notReadable",
            message=f"{', '.join(names)} could not be read, so nothing is certain",
            fix="call it, or take the snapshot, as a user who may list them",
            objects=(),
        )


def _check_drivers(nodes: Iterable[Node]) -> Iterator[Blocker]:
    old = {
        f"Node//{node.metadata.name}": version
        for node in nodes
        if (version := nvidia_driver(node.labels)) is not None and version < OLDEST_NVIDIA_DRIVER
    }
    if old:
        versions = ", ".join(map(str, sorted(set(old.values()))))
        yield Blocker(
            code="gpuDriverTooOld",
            message=f"nodes have NVIDIA's driver {versions}; its DRA driver needs {OLDEST_NVIDIA_DRIVER}",
            fix=f"upgrade the GPU driver of these nodes to {OLDEST_NVIDIA_DRIVER} or newer",
            objects=tuple(sorted(old)),
        )


def nvidia_driver(labels: Mapping[str, str]) -> int | None:
    """Return the major version of NVIDIA's driver that a node's labels tell.

    >>> nvidia_driver({"nvidia.com/cuda.driver-version.major": "580"}), nvidia_driver({})
    (580, None)
    """
    text = next((labels[label] for label in DRIVER_LABELS if label in labels), "")
    return int(text) if re.fullmatch("[0-9]{1,6}", text) else None


_MORE_FIXES: Final = {
    Code.QUOTA_NOT_COUNTED.value: "; `drawbridge plan` holds these namespaces",
    Code.SHARES_NOT_SUPPORTED.value: "; if it is on already, say so in validation.featureGates of the file "
    "that --settings names",
}
"""Commands that do for the whole cluster what a finding says of one object."""


def _check_refused(workloads: Iterable[AssessedWorkload]) -> Iterator[Blocker]:
    """Yield a blocker for each code that pods would be rejected with."""
    by_code: dict[str, dict[str, str]] = {}
    for workload in workloads:
        if workload.outcome is not Outcome.REFUSED:
            continue
        for finding in workload.findings:
            if finding.is_error:
                fixes = by_code.setdefault(finding.code.value, {})
                fixes.setdefault(workload.key.reference, finding.fix)
    for code, fixes in sorted(by_code.items(), key=lambda entry: (-len(entry[1]), entry[0])):
        yield Blocker(
            code=code,
            message="pods would be rejected",
            fix=_most_common(fixes) + _MORE_FIXES.get(code, ""),
            objects=tuple(fixes),
        )


def _most_common(fixes: Mapping[str, str]) -> str:
    counts: dict[str, int] = {}
    for fix in fixes.values():
        counts[fix] = counts.get(fix, 0) + 1
    return max(counts, key=lambda fix: counts[fix])
