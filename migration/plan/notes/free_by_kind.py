"""The free devices of each kind of node around a wave, in clusters with several kinds. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping

import msgspec

from migration.assessment.assessed_cluster import AssessedCluster
from migration.cluster.node_devices import GPU, PRODUCT, NodeDevices
from migration.plan.model.plan import FreeDevicesReport, FreeOfKind, Wave
from migration.plan.search.device_map import NodeState, NodeUse, WaveDetails


def node_kinds(cluster: AssessedCluster) -> dict[str, str]:
    """Return node to its kind: the products of its devices, with the names of those that are no whole GPUs.

    GPU feature discovery writes a product with hyphens for blanks, and HAMi's register as the card calls itself.
    """
    labels = {node.metadata.name: node.labels for node in cluster.state.nodes}
    drivers: dict[str, set[str]] = {}
    for slice_ in cluster.state.slices:
        drivers.setdefault(slice_.spec.node_name or "", set()).add(slice_.spec.driver)
    kinds = {
        node.node: _legacy_kind(node)
        or labels.get(node.node, {}).get(PRODUCT, "")
        or ", ".join(sorted(drivers.get(node.node, ())))
        for node in cluster.nodes
    }
    names = frozenset(kinds.values())
    hyphenated = {name: name.replace(" ", "-") for name in names}
    return {
        node: own if (own := hyphenated[kind]) in names else kind for node, kind in kinds.items()
    }


def _legacy_kind(node: NodeDevices) -> str:
    """Return the kind that the legacy system of a node tells; empty if it tells nothing but a number of GPUs."""
    models = ", ".join(sorted({device.model for device in node.legacy if device.model}))
    keys = ", ".join(sorted({device.key for device in node.legacy if device.key != GPU}))
    return f"{models} ({keys})" if models and keys else models or keys


def with_free_by_kind(wave: Wave, details: WaveDetails, kinds: Mapping[str, str]) -> Wave:
    """Return a wave with the free devices of each kind of node, unless there is one kind.

    Args:
        wave: The wave.
        details: The use of devices around it.
        kinds: Node to its kind.
    """
    if len({kinds.get(name, "") for name in details.before}) < 2:
        return wave
    return msgspec.structs.replace(wave, free_by_kind=tuple(_reports(details, kinds)))


def _reports(details: WaveDetails, kinds: Mapping[str, str]) -> Iterator[FreeOfKind]:
    before, after = _free(details.before, kinds), _free(details.after, kinds)
    for kind in sorted({kinds.get(name, "") for name in details.before}):
        by_keys, by_claims = ((kind, state) for state in (NodeState.PLUGIN, NodeState.DRA))
        yield FreeOfKind(
            kind=kind or "not known",
            for_keys=FreeDevicesReport(before=before[by_keys], after=after[by_keys]),
            for_claims=FreeDevicesReport(before=before[by_claims], after=after[by_claims]),
        )


def _free(uses: Mapping[str, NodeUse], kinds: Mapping[str, str]) -> Counter[tuple[str, NodeState]]:
    """Return each kind and state of nodes to the number of their free devices."""
    counts: Counter[tuple[str, NodeState]] = Counter()
    for name, use in uses.items():
        counts[kinds.get(name, ""), use.state] += use.devices - use.in_use
    return counts
