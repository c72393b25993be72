"""JupyterHubs without servers of users that request devices, so that a plan knows nothing of these. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from kube.manifests.source import SourceObject
from kube.names import TRANSLATE_LABEL
from migration.cluster.evidence import text_map
from migration.cluster.work_groups import is_hub, is_hub_server
from migration.cluster.workloads import Workload
from migration.plan.model.plan import Plan, Wave, is_name, is_namespace

_AGAIN: Final = "plan again from a new snapshot while servers of each kind run"
_OPTED_IN: Final = (
    "no server of {} (JupyterHub) with devices runs, so this plan knows no node for them: from this wave on new ones get claims, and "
    "wait where no switched node serves these: until the last wave let them keep their device keys (label "
    f'{TRANSLATE_LABEL}: "false", by singleuser.extraLabels of Zero to JupyterHub\'s chart), or {_AGAIN}'
)
_LEFT_OUT: Final = (
    "no server of {0} (JupyterHub) with devices runs, so no wave opts in namespace {1}: after this wave new ones with shares of devices "
    f"wait; {_AGAIN}, or opt it in by hand then (kubectl label namespace {{1}} {TRANSLATE_LABEL}=true)"
)


class _Hub(NamedTuple):
    namespace: str
    reference: str


def with_hubs(
    plan: Plan,
    objects: Sequence[SourceObject],
    groups: Mapping[str, Workload],
    with_devices: Collection[str],
) -> Plan:
    """Return a plan with a note on each JupyterHub without a server that requests devices.

    It is one of the wave that opts in its namespace as a whole, unless no node stays with its device plugin, or else of the
    last wave.

    Args:
        plan: The plan.
        objects: The cluster's objects.
        groups: Workload, as `Kind/namespace/name`, to its pods.
        with_devices: The workloads that request devices, likewise.
    """
    serving = {
        group.key.namespace
        for reference, group in groups.items()
        if reference in with_devices and any(is_hub_server(pod.document) for pod in group.pods)
    }
    hubs = [hub for hub in _hubs(objects) if hub.namespace not in serving]
    if not hubs or not plan.waves:
        return plan
    labelled = {
        source.name
        for source in objects
        if source.kind == "Namespace"
        and TRANSLATE_LABEL in text_map(source.document, "metadata", "labels")
    }
    moved = labelled.union(*(wave.opted_in for wave in plan.waves))
    moved.update(entry.object.removeprefix("Namespace//") for entry in plan.held)
    waves = []
    for wave in plan.waves:
        notes = [
            _OPTED_IN.format(hub.reference)
            for hub in hubs
            if hub.namespace in wave.namespaces and _leaves_nodes(plan, wave)
        ]
        if wave is plan.waves[-1]:
            notes += [
                _LEFT_OUT.format(hub.reference, hub.namespace)
                for hub in hubs
                if hub.namespace not in moved
            ]
        waves.append(replace(wave, notes=(*wave.notes, *notes)))
    return replace(plan, waves=tuple(waves))


def _hubs(objects: Iterable[SourceObject]) -> Iterator[_Hub]:
    for source in objects:
        namespace = source.namespace or "default"
        if is_hub(source) and is_name(source.name) and is_namespace(namespace):
            yield _Hub(namespace, f"{source.kind}/{namespace}/{source.name}")


def _leaves_nodes(plan: Plan, wave: Wave) -> bool:
    """Return True if nodes with devices are not switched yet after a wave, or never."""
    return any(later.nodes for later in plan.waves if later.wave > wave.wave) or any(
        entry.object.startswith("Node//") for entry in plan.held
    )
