"""The problems to solve before a cluster can move."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from answers.model.cluster_state import ClusterState
from answers.model.kubernetes_version import OLDEST_KUBERNETES, format_version, parse_version
from findings.field_path import FieldPath
from findings.finding import Code, Finding, info
from findings.text import count_text, join_names
from kube.api.core import Node, Pod
from kube.manifests.source import SourceObject
from migration.assessment.capacity import Capacity, pods_in_parts
from migration.assessment.outcomes import AssessedWorkload, Outcome
from migration.assessment.unserved import WHOLE_CARD, stay_fix
from migration.cluster.evidence import text_map
from migration.cluster.limit_ranges import LimitRangeFault, RejectedWorkload
from migration.cluster.node_devices import NodeDevices
from migration.legacy.smaller_cards import CardSizes, SmallerCards, SwitchedNode
from translation.compiling.claims import Claim
from translation.reading.legacy_pod import OPT_OUT_LABELS
from translation.vocabularies.hami.keys import NODE_REGISTER
from translation.vocabularies.nvidia import MIG_PREFIX, SHARED

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
UNREAD_REGISTER: Final = f"the annotation {NODE_REGISTER} cannot be read"
READ_REGISTER: Final = "HAMi's device plugin writes it every 30 seconds: look at its log on the node, then take the snapshot again"
DRIVER_LABELS: Final = ("nvidia.com/cuda.driver-version.major", "nvidia.com/cuda.driver.major")
"""Labels of GPU feature discovery; the second is the older name."""

NOT_PLACED: Final = "notPlaced"
"""The code of pods that no node would serve."""
TIME_SLICING: Final = "--time-slicing"
WHOLE: Final = "whole"
STOP_SHARING: Final = (
    "take the sharing out of the device plugin's configuration for these nodes, so that each pod has a whole GPU before "
    "the migration; or let the pods request a share with its memory (nvidia.com/gpu with nvidia.com/gpumem), and HAMi "
    "serve these nodes"
)
FIX: Final = (
    f"{STOP_SHARING}; or plan with {TIME_SLICING} {WHOLE}, if each pod may get a whole one; or leave the pods with the device "
    "plugin, which needs a name of its own for the parts: renameByDefault in NVIDIA's configuration, pods that request the new "
    f"name, such as {SHARED}, and in quotas; the nodes' product loses -SHARED then, for pods that select it; and that name in "
    "translation.keep of the settings"
)
_SIMULATE: Final = "drawbridge simulate tells why for each"
_PUBLISH: Final = (
    "have a driver publish such devices on the nodes that they may use, or change their request (to a share of a device, for "
    f"example: {WHOLE_CARD}) or their node selector; {_SIMULATE}"
)
_FREE: Final = f"free devices, or add nodes; {_SIMULATE}"
_MIG_FIX: Final = (
    "let the device plugin offer them under the names of their sizes (MIG strategy mixed), and the pods request these, such "
    "as {}; GKE's own plugin cannot, so move its pods to nodes without partitions; then plan again from a new snapshot"
)

_KEEP_CARDS: Final = "request an amount of memory, or select nodes by a label of the larger cards"


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
    staying: Mapping[str, Collection[str]] = {},
    converts_quotas: bool = True,
) -> Iterator[Blocker]:
    """Yield the blockers, those of the cluster first.

    Args:
        nodes: The nodes with devices of a legacy system.
        version: The API server's version; empty if it is not known.
        unreadable: Resources that could not be read.
        unread_nodes: The nodes whose devices HAMi has registered in a form that cannot be read.
        unserved: The workloads that no node would serve, however empty it was.
        staying: Workload to those nodes of its pods that stay with their device plugin.
        converts_quotas: The workloads are evaluated by the quotas as they would be converted.
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
    yield from _check_refused(workloads, converts_quotas=converts_quotas)
    yield from _check_capacity(capacity, unserved, staying)


def _check_capacity(
    capacity: Capacity, unserved: Collection[str], staying: Mapping[str, Collection[str]]
) -> Iterator[Blocker]:
    """Yield a blocker for pods that no node would ever serve, and one for those that find devices in use."""
    never = {name: pods for name, pods in capacity.unplaced.items() if name in unserved}
    others = {name: pods for name, pods in capacity.unplaced.items() if name not in unserved}
    if never:
        pods = sum(never.values())
        yield Blocker(
            code=NOT_PLACED,
            message=f"{pods} of {capacity.pods} pods would find no node that serves them, even if all were empty",
            fix=stay_fix({name: staying.get(name, ()) for name in never}, _PUBLISH),
            objects=tuple(never),
        )
    if others:
        pods = sum(others.values())
        waiting = sum(capacity.waiting.get(name, 0) for name in others)
        waits = "all of them wait" if waiting == pods else f"{waiting} of them wait"
        today = f"; {waits}{'s' if waiting == 1 < pods else ''} today, too" if waiting else ""
        yield Blocker(
            code=NOT_PLACED,
            message=f"{pods} of {capacity.pods} pods would find no node with devices, CPU and memory{today}",
            fix=stay_fix({name: staying.get(name, ()) for name in others}, _FREE),
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


def check_readable(unreadable: Iterable[str], needed: Iterable[str] = NEEDED) -> Iterator[Blocker]:
    """Yield a blocker if required objects could not be read: the answer would be a guess."""
    missing = set(unreadable)
    names = [name for name in needed if name in missing]
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


_MAX_FIXES: Final = 4
"""Fixes of one code that have a blocker each; fixes with values of objects in them may be as many as these."""
_HELD: Final = "; `drawbridge plan` holds these namespaces"
_CONVERTED: Final = "; the runbooks of `drawbridge plan` convert the quotas that can be, and the namespaces of others are held"
_MORE_FIXES: Final = {
    Code.QUOTA_NOT_COUNTED.value: _HELD,
    Code.SHARES_NOT_SUPPORTED.value: "; if it is on already, say so in validation.featureGates of the file "
    "that --settings names",
}
"""Commands that do for the whole cluster what a finding says of one object."""


def _check_refused(
    workloads: Iterable[AssessedWorkload], *, converts_quotas: bool
) -> Iterator[Blocker]:
    """Yield a blocker for each code that pods would be rejected with, and each of its fixes, the most common first."""
    by_code: dict[str, dict[str, list[str]]] = {}
    for workload in workloads:
        if workload.outcome is not Outcome.REFUSED:
            continue
        fixes: dict[str, str] = {}
        for finding in workload.findings:
            if finding.is_error:
                fixes.setdefault(finding.code.value, finding.fix)
        for code, fix in fixes.items():
            by_code.setdefault(code, {}).setdefault(fix, []).append(workload.key.reference)
    counts = {code: sum(map(len, fixes.values())) for code, fixes in by_code.items()}
    more_fixes = _MORE_FIXES
    if not converts_quotas:
        more_fixes = {**_MORE_FIXES, Code.QUOTA_NOT_COUNTED.value: _CONVERTED}
    for code, names_by_fix in sorted(
        by_code.items(), key=lambda entry: (-counts[entry[0]], entry[0])
    ):
        for fix, names in _merged(names_by_fix):
            yield Blocker(
                code=code,
                message="pods would be rejected",
                fix=fix + more_fixes.get(code, ""),
                objects=tuple(names),
            )


def _merged(names_by_fix: Mapping[str, list[str]]) -> list[tuple[str, list[str]]]:
    """Return fixes with their workloads, the most common first; one that many others follow stands for these, too."""
    ordered = sorted(names_by_fix.items(), key=lambda entry: (-len(entry[1]), entry[0]))
    if len(ordered) <= _MAX_FIXES:
        return ordered
    first, *others = ordered
    return [(first[0], [*first[1], *(name for _, names in others for name in names)])]


# --- parts of devices -----------------------------------------------------------------------------


class GpuParts(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of GPUs that a device plugin offers under the name of whole ones.

    Attributes:
        times: The times that it offers each device.
        mig_size: The size of the MIG devices that it offers; empty if it offers GPUs.
    """

    times: int = 1
    mig_size: str = ""


def sliced_nodes(nodes: Iterable[NodeDevices], *, gives_whole: bool) -> dict[str, GpuParts]:
    """Return the nodes that offer parts of GPUs under the name of whole ones.

    Args:
        nodes: The nodes with devices.
        gives_whole: Nodes that offer each GPU several times are left out, since each pod may get a whole one; a node of
            MIG devices has none.

    Source: NVIDIA/k8s-device-plugin, api/config/v1 (sharing.timeSlicing, sharing.mps): without `renameByDefault` a part
    has the resource name of a whole device, and its node the label `nvidia.com/gpu.replicas`. With the MIG strategy
    `single` a MIG device has it.
    """
    return {
        node.node: GpuParts(times=node.replicas, mig_size=node.mig_size)
        for node in nodes
        if node.mig_size or (node.replicas > 1 and not gives_whole)
    }


def times_text(counts: Iterable[int]) -> str:
    """Return the times that devices are offered, such as `4 times`."""
    numbers = sorted(set(counts))
    return f"{' or '.join(map(str, numbers))} times"


def sizes_text(parts: Iterable[GpuParts]) -> str:
    """Return the sizes of MIG devices, such as `1g.5gb`; empty without one."""
    return join_names(sorted({entry.mig_size for entry in parts if entry.mig_size}))


def fix_for_parts(parts: Collection[GpuParts]) -> str:
    """Return the ways on for nodes that offer parts of GPUs of one form."""
    sizes = [f"{MIG_PREFIX}{entry.mig_size}" for entry in parts if entry.mig_size]
    return _MIG_FIX.format(join_names(sorted(set(sizes)))) if sizes else FIX


def check_parts(
    workloads: Sequence[AssessedWorkload],
    pods: Mapping[tuple[str, str], Pod],
    sliced: Mapping[str, GpuParts],
) -> Iterator[Blocker]:
    """Yield a blocker for the pods that have parts of GPUs of each form, since no claim gives them these.

    Args:
        workloads: The cluster's workloads.
        pods: The pods by namespace and name.
        sliced: The nodes that offer parts of GPUs.
    """
    for parts in _by_form(sliced):
        numbers = pods_in_parts(workloads, pods, parts)
        if not numbers:
            continue
        place = f"{count_text(sum(numbers.values()), 'pod')} on {count_text(len(parts), 'node')}"
        sizes = sizes_text(parts.values())
        text = (
            f"{place} have a MIG device each: the device plugin offers those of {sizes} under the name of GPUs, and with "
            "claims each pod would wait for a whole GPU, which a DRA driver does not publish there"
            if sizes
            else f"{place} have a part of a GPU each: the device plugin offers every one "
            f"{times_text(entry.times for entry in parts.values())} under the name of whole ones (time slicing or MPS), and "
            "with claims each pod would get a whole one"
        )
        yield Blocker(
            code=Code.GPUS_IN_PARTS.value,
            message=f"{text}; they are not placed here, and plan holds their nodes",
            fix=fix_for_parts(parts.values()),
            objects=tuple(numbers),
        )


def with_parts(
    workloads: Sequence[AssessedWorkload],
    pods: Mapping[tuple[str, str], Pod],
    sliced: Mapping[str, GpuParts],
) -> tuple[AssessedWorkload, ...]:
    """Return workloads, those of pods with a part of a device each with a finding; arguments as of `check_parts`."""
    findings: dict[str, list[Finding]] = {}
    for parts in _by_form(sliced):
        fix = fix_for_parts(parts.values())
        text = (
            "have a MIG device each under the name of a GPU, and would wait for a whole one"
            if sizes_text(parts.values())
            else "have a part of a GPU each, and would get a whole one"
        )
        for reference, number in pods_in_parts(workloads, pods, parts).items():
            finding = info(
                Code.GPUS_IN_PARTS,
                FieldPath.of(),
                f"{count_text(number, 'pod')} of it {text}",
                fix=fix,
            )
            findings.setdefault(reference, []).append(finding)
    return tuple(
        msgspec.structs.replace(workload, findings=(*workload.findings, *own))
        if (own := findings.get(workload.key.reference))
        else workload
        for workload in workloads
    )


def _by_form(sliced: Mapping[str, GpuParts]) -> Iterator[dict[str, GpuParts]]:
    """Yield the nodes that offer each GPU several times, and those of MIG devices, if there are some."""
    for is_mig in (False, True):
        nodes = {name: parts for name, parts in sliced.items() if bool(parts.mig_size) is is_mig}
        if nodes:
            yield nodes


def check_limit_ranges(
    rejected: Mapping[str, RejectedWorkload], nodes: Collection[str], moving: Collection[str]
) -> Iterator[Blocker]:
    """Yield a blocker for each LimitRange that lets workloads have no new pods, so that those of a drain do not come again.

    Args:
        rejected: The workloads with next pods that a LimitRange rejects.
        nodes: The nodes with devices of a legacy system.
        moving: The workloads that move; others with devices have reasons of their own.
    """
    names_of: dict[LimitRangeFault, list[str]] = {}
    for reference, entry in rejected.items():
        if reference in moving or not entry.nodes.isdisjoint(nodes):
            names_of.setdefault(entry.fault, []).append(reference)
    for fault, names in names_of.items():
        yield Blocker(
            code="rejectedByLimitRange",
            message=f"{fault.text} would reject new pods, so what a drain evicts does not come again; plan holds their nodes",
            fix=fault.fix,
            objects=tuple(names),
        )


def opted_out_native(
    objects: Iterable[SourceObject], workloads: Iterable[AssessedWorkload]
) -> tuple[str, ...]:
    """Return the native workloads in namespaces that are opted out, as `Kind/namespace/name`."""
    opted_out = {
        source.name
        for source in objects
        if source.kind == "Namespace"
        and any(
            text_map(source.document, "metadata", "labels").get(key) == value
            for key, value in OPT_OUT_LABELS.items()
        )
    }
    return tuple(
        workload.key.reference
        for workload in workloads
        if workload.outcome is Outcome.NATIVE and workload.key.namespace in opted_out
    )


def opt_out_notes(
    objects: Iterable[SourceObject], workloads: Iterable[AssessedWorkload]
) -> Iterator[Blocker]:
    """Yield a note on native workloads in namespaces that are opted out, since Kubernetes serves these all the same."""
    if names := opted_out_native(objects, workloads):
        yield Blocker(
            code="optedOutNative",
            message="their namespace is opted out of translation, which leaves their keys and holds no node and no pod of whole "
            "devices: Kubernetes serves these by a DeviceClass, on nodes with the driver, too",
            fix="where they are to stay with the device plugin, give their templates a required node affinity that leaves out "
            "switched nodes by the label of the driver, as nvidia.com/dra-kubelet-plugin DoesNotExist for NVIDIA's (drivers in "
            "plan.yaml): plan keeps nodes for them then",
            objects=names,
        )


def claims_ahead(workload: AssessedWorkload) -> Sequence[Claim]:
    """Return the claims of the next pods of a workload; none for those that keep their keys."""
    is_native = workload.outcome is Outcome.NATIVE
    return () if workload.result is None or is_native else workload.result.claims


def find_smaller_cards(
    workloads: Iterable[AssessedWorkload], nodes: Sequence[NodeDevices], state: ClusterState
) -> Iterator[Blocker]:
    """Yield a note on the workloads that may get smaller cards once all nodes have their drivers.

    Args:
        workloads: The cluster's workloads.
        nodes: The nodes with devices.
        state: The cluster's state, with assumed slices.
    """
    if len({node.source for node in nodes}) < 2:
        return  # One system keeps its pods from the nodes of another.
    drivers: dict[str, set[str]] = {}
    for slice_ in state.slices:
        if slice_.spec.node_name:
            drivers.setdefault(slice_.spec.node_name, set()).add(slice_.spec.driver)
    nodes_by_name = {node.metadata.name: node for node in state.nodes}
    planned = {
        entry.node: SwitchedNode(frozenset(drivers.get(entry.node, ())), nodes_by_name[entry.node])
        for entry in nodes
        if entry.legacy
    }
    sizes = CardSizes(planned, frozenset(), nodes, state)
    names: dict[SmallerCards, list[str]] = {}
    for workload in workloads:
        pods = (state.pods.get(name) for name in sorted(workload.members))
        own = frozenset(
            pod.spec.node_name for pod in pods if pod is not None and pod.spec.node_name
        )
        smaller = sizes.smaller(workload.key, workload.members, claims_ahead(workload), own)
        if smaller is not None:
            names.setdefault(smaller, []).append(workload.key.reference)
    for smaller, references in names.items():
        cards = f"the cards of {smaller.size} of {join_names(smaller.nodes)}"
        ahead = (
            f"{cards} alone have a driver of such claims"
            if smaller.leaves
            else f"claims of these fit {cards}, too"
        )
        yield Blocker(
            code="smallerCards",
            message=f"whole cards or a percentage are requested on cards of {smaller.used}, and {ahead}",
            fix="request an amount of memory" if smaller.leaves else _KEEP_CARDS,
            objects=tuple(references),
        )
