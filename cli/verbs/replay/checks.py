"""Checks of the pods of a replay against its cluster. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from allocator.replay.csv_pods import CsvFault
from allocator.replay.workload import ReplayPod
from answers.model.cluster_state import ClusterState
from findings.text import count_text, join_names, printable, quote_text
from kube.api.resource import ResourceClaimSpec
from kube.quantity import Quantity
from rules.model.naming import suggest_name

MAX_NOTES: Final = 10
"""Notes about amounts that no device has."""
_NAMED: Final = 3


class _Rows(NamedTuple):
    """The pods with the same claims."""

    spec: ResourceClaimSpec
    pods: list[ReplayPod]


def find_csv_faults(pods: Iterable[ReplayPod], state: ClusterState) -> Iterator[CsvFault]:
    """Yield a fault for each class and each capacity in a CSV that is missing in the cluster."""
    rows = _rows(pods)
    yield from sorted(
        (*_class_faults(rows, state), *_capacity_faults(rows, _largest_capacities(state))),
        key=lambda fault: fault.line,
    )


def _class_faults(rows: Sequence[_Rows], state: ClusterState) -> Iterator[CsvFault]:
    for name, lines in _lines_by_class(rows).items():
        if name not in state.classes:
            yield _fault(
                lines,
                "class",
                f"{_missing_class(name)}; {_suggest_class(name, state)}",
            )


def _capacity_faults(
    rows: Sequence[_Rows], capacities: Mapping[str, Quantity]
) -> Iterator[CsvFault]:
    lines_of: dict[str, list[int]] = {}
    for row in rows:
        for name in _amounts(row.spec):
            if name not in capacities:
                lines_of.setdefault(name, []).extend(pod.line for pod in row.pods)
    for name, lines in lines_of.items():
        yield _fault(
            lines,
            "capacity",
            f"no device has the capacity {quote_text(name)}; "
            f"{suggest_name(name, _plain(capacities)) or 'none has any capacity'}",
        )


def pod_notes(pods: Iterable[ReplayPod], state: ClusterState) -> Iterator[str]:
    """Yield notes about classes that the cluster does not have, and amounts that none of its devices has."""
    rows = _rows(pods)
    for name, own_pods in _pods_by_class(rows).items():
        if name not in state.classes:
            count = count_text(len(own_pods), "pod")
            yield (
                f"{_missing_class(name)}, requested by {count} such as {printable(own_pods[0].name)}; "
                f"{_suggest_class(name, state)}"
            )
    capacities = _largest_capacities(state)
    excesses: dict[tuple[str, Quantity], list[ReplayPod]] = {}
    for row in rows:
        for name, amount in _amounts(row.spec).items():
            if name in capacities and amount > capacities[name]:
                excesses.setdefault((name, amount), []).extend(row.pods)
    for (name, amount), own_pods in list(excesses.items())[:MAX_NOTES]:
        yield (
            f"no device has {printable(name)} {amount}, the largest has {capacities[name]}: {_places(own_pods)} "
            f"{'requests' if len(own_pods) == 1 else 'request'} it, and fail{'s' * (len(own_pods) == 1)}"
        )
    if len(excesses) > MAX_NOTES:
        more = len(excesses) - MAX_NOTES
        yield f"{more} more {'amounts' if more > 1 else 'amount'} of capacities that no device has are requested"


def cluster_notes(state: ClusterState) -> Iterator[str]:
    """Yield notes about nodes without limits of CPU and memory."""
    if not state.has_nodes:
        yield (
            "no Node objects are given; the nodes that ResourceSlices name have no labels, and CPU and memory have no "
            "limits there"
        )
        return
    unlimited = [node.metadata.name for node in state.nodes if node.status.allocatable is None]
    if unlimited:
        yield (
            f"{len(unlimited)} of {count_text(len(state.nodes), 'node')} without status.allocatable: CPU and memory have "
            f"no limits there, so more pods are placed than could run, and strategies may rank the other way round: "
            f"{join_names(unlimited, _NAMED)}"
        )


def _rows(pods: Iterable[ReplayPod]) -> Sequence[_Rows]:
    rows: dict[int, _Rows] = {}
    for pod in pods:
        for claim in pod.all_claims:
            rows.setdefault(id(claim.spec), _Rows(claim.spec, [])).pods.append(pod)
    return tuple(rows.values())


def _pods_by_class(rows: Iterable[_Rows]) -> Mapping[str, Sequence[ReplayPod]]:
    pods: dict[str, list[ReplayPod]] = {}
    for row in rows:
        for name in dict.fromkeys(_classes(row.spec)):
            pods.setdefault(name, []).extend(row.pods)
    return pods


def _lines_by_class(rows: Iterable[_Rows]) -> Mapping[str, Sequence[int]]:
    return {name: [pod.line for pod in pods] for name, pods in _pods_by_class(rows).items()}


def _classes(spec: ResourceClaimSpec) -> Iterator[str]:
    """Yield the classes in a claim."""
    for request in spec.devices.requests or ():
        if request.exactly is not None:
            yield request.exactly.device_class_name
        yield from (option.device_class_name for option in request.first_available or ())


def _amounts(spec: ResourceClaimSpec) -> Mapping[str, Quantity]:
    """Return the largest amount of each capacity in the requests for one device, without alternatives."""
    amounts: dict[str, Quantity] = {}
    for request in spec.devices.requests or ():
        exactly = request.exactly
        if exactly is not None and exactly.capacity is not None:
            for name, amount in (exactly.capacity.requests or {}).items():
                amounts[name] = max(amount, amounts.get(name, amount))
    return amounts


def _largest_capacities(state: ClusterState) -> Mapping[str, Quantity]:
    """Return capacity to the largest amount that a device has, by its name and by that with its driver's domain."""
    largest: dict[str, Quantity] = {}
    for slice_ in state.slices:
        for device in slice_.spec.devices or ():
            for name, capacity in (device.capacity or {}).items():
                for known_name in (name, f"{slice_.spec.driver}/{name}"):
                    amount = capacity.value
                    largest[known_name] = max(amount, largest.get(known_name, amount))
    return largest


def _plain(capacities: Iterable[str]) -> Iterator[str]:
    return (name for name in capacities if "/" not in name)


def _missing_class(name: str) -> str:
    return f"the cluster has no DeviceClass {quote_text(name)}"


def _suggest_class(name: str, state: ClusterState) -> str:
    return suggest_name(name, sorted(state.classes)) or "it has none at all"


def _fault(lines: Sequence[int], column: str, message: str) -> CsvFault:
    first, more = min(lines), len(lines) - 1
    if more:
        message += f" ({more} more {'lines' if more > 1 else 'line'})"
    return CsvFault(line=first, column=column, message=message)


def _places(pods: Sequence[ReplayPod]) -> str:
    """Return the lines of pods in a CSV, or their names."""
    if all(pod.line for pod in pods):
        noun = "lines" if len(pods) > 1 else "line"
        return f"{noun} {join_names([str(pod.line) for pod in pods], _NAMED)}"
    return join_names([pod.name for pod in pods], _NAMED)
