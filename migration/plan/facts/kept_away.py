"""The DaemonSets of legacy systems that have to keep away from switched nodes, by node affinity. Pure.

A device plugin must not share a node with the DRA driver of its devices. koordlet would register the driver's
devices again, and koord-scheduler would hand them out a second time.

Sources: koordinator-sh/koordinator pkg/koordlet/statesinformer (koordlet has no switch per node);
kubernetes-sigs/dra-driver-nvidia-gpu (no device plugin beside it).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from findings.text import join_names
from kube.api.workloads import DAEMON_SET
from kube.manifests.source import SourceObject
from migration.cluster.evidence import list_at, mapping_at
from migration.cluster.node_devices import Source
from migration.legacy.plugin_vendors import NVIDIA, plugin_vendor
from migration.plan.drivers.vendors import (
    OPERATOR_PREFIX,
    driver_label,
    is_koordlet,
    is_managed,
    registers_devices,
)
from migration.plan.facts.device_plugins import DevicePlugins, is_owned_plugin
from migration.plan.facts.environment import REVERTING, in_repository, remapped_classes
from migration.plan.facts.repository_patches import KUSTOMIZE
from migration.plan.model.plan import (
    Plan,
    PlannedNode,
    PluginDaemonSet,
    Wave,
    is_name,
    is_namespace,
)


def kept_away(
    objects: Iterable[SourceObject],
    operator: str,
    nodes: Collection[PlannedNode],
    plugins: DevicePlugins,
) -> tuple[PluginDaemonSet, ...]:
    """Return the DaemonSets that do not stay away from switched nodes by themselves.

    The device plugins of the GPU Operator and of HAMi follow labels of their own, what a cloud or an operator
    manages is put back as it was, and a plugin that comes to none of the nodes stays as it is. So does a koordlet that
    registers no devices.

    Args:
        objects: The cluster's objects.
        operator: Version of NVIDIA's GPU Operator; empty without one.
        nodes: The nodes that may be switched.
        plugins: The cluster's device plugins.
    """
    koordinator = {
        driver for node in nodes if node.source == Source.KOORDINATOR for driver in node.devices
    }
    drivers_of: dict[tuple[str, str], set[str]] = {}
    for node in nodes:
        for source in plugins.offering(node):
            vendor = plugin_vendor(source)
            own = vendor.driver if vendor is not None else ""
            # The GPU Operator's own leaves by a label of its own; one of another chart beside the Operator stays.
            has_operator = operator or any(
                label.startswith(OPERATOR_PREFIX) for label in node.labels
            )
            leaves = own == NVIDIA and has_operator and not plugins.comes_after(source, node)
            if leaves or is_owned_plugin(source):
                continue
            # Another driver may take the devices over, as on HAMi's nodes, and its label is what the node gets then.
            drivers = (own,) if own in node.devices else node.devices
            drivers_of.setdefault((source.namespace, source.name), set()).update(drivers)
    entries = (
        _kept_away(source, drivers_of.get((source.namespace, source.name), koordinator))
        for source in objects
        if source.kind == DAEMON_SET
        and (
            (is_koordlet(source) and registers_devices(source))
            or (source.namespace, source.name) in drivers_of
        )
        and not is_managed(source)
    )
    return tuple(entry for entry in entries if entry is not None)


def _kept_away(source: SourceObject, drivers: Iterable[str]) -> PluginDaemonSet | None:
    """Return a DaemonSet that does not stay away from nodes with the labels of these drivers; None if it does."""
    labels = tuple("=".join(driver_label(driver)) for driver in sorted(drivers))
    namespace = source.namespace or "default"
    missing = missing_labels(source.document, labels)
    if not missing or not is_namespace(namespace) or not is_name(source.name):
        return None
    excluded = [_excluding(label) for label in missing]
    return PluginDaemonSet(
        namespace=namespace,
        name=source.name,
        labels=labels,
        node_selector_terms=tuple(
            {**term, "matchExpressions": [*list_at(term, "matchExpressions"), *excluded]}
            for term in _required_terms(source.document)
        ),
        affinity=mapping_at(source.document, "spec", "template", "spec").get("affinity"),
    )


def missing_labels(daemon_set: Mapping[str, Any], labels: Iterable[str]) -> list[str]:
    """Return the labels, given as `key=value`, that a DaemonSet does not stay away from."""
    terms = _required_terms(daemon_set)
    return [label for label in labels if not all(_excludes(term, label) for term in terms)]


def _required_terms(daemon_set: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    terms = list_at(
        daemon_set,
        *("spec", "template", "spec", "affinity", "nodeAffinity"),
        *("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"),
    )
    return [term for term in terms if isinstance(term, Mapping)] or [{}]


def _excluding(label: str) -> dict[str, Any]:
    key, _, value = label.partition("=")
    return {"key": key, "operator": "NotIn", "values": [value]}


def _excludes(term: Mapping[str, Any], label: str) -> bool:
    """Return True if a term takes no node with a label."""
    key, _, value = label.partition("=")
    for entry in map(mapping_at, list_at(term, "matchExpressions")):
        if entry.get("key") != key:
            continue
        operator, is_listed = entry.get("operator"), value in list_at(entry, "values")
        if operator == "DoesNotExist" or (operator == "NotIn" and is_listed):
            return True
        if operator == "In" and not is_listed:
            return True
    return False


def is_kept_away(plan: Plan, wave: Wave, reference: str) -> bool:
    """Return True for a DaemonSet, given as `Kind/namespace/name`, that prepare.sh keeps from nodes of a wave."""
    labels = {f"{key}={value}" for node in wave.nodes for key, value in node.labels.items()}
    return any(
        reference == f"{DAEMON_SET}/{plugin.namespace}/{plugin.name}"
        and not labels.isdisjoint(plugin.labels)
        for plugin in plan.plugins
    )


def is_remapped(plan: Plan, reference: str) -> bool:
    """Return True for a DeviceClass, given as `Kind/namespace/name`, that prepare.sh gives a resource name, or takes one from."""
    return reference in {f"DeviceClass//{name}" for name in remapped_classes(plan)}


def returning_texts(plan: Plan) -> Iterator[str]:
    """Yield a sentence on each preparation that a manager of objects would take back: of DaemonSets and DeviceClasses."""
    for name in sorted(remapped_classes(plan)) if plan.waves else ():
        manager = plan.managed.get(f"DeviceClass//{name}")
        if manager in REVERTING and not in_repository(plan, "DeviceClass", "", name):
            yield (
                f"preflight.sh stops each wave, since {manager} would take back the resource name that prepare.sh changes in "
                f"DeviceClass/{name}: before the first wave plan again with --format {KUSTOMIZE}."
            )
    for plugin in plan.plugins:
        place = DAEMON_SET, plugin.namespace, plugin.name
        reference = "/".join(place)
        manager = plan.managed.get(reference)
        waves = [str(wave.wave) for wave in plan.waves if is_kept_away(plan, wave, reference)]
        if waves and manager in REVERTING and not in_repository(plan, *place):
            words = f"wave{'s' if len(waves) > 1 else ''} {join_names(waves)}"
            yield (
                f"preflight.sh stops {words}, since {manager} would take back that prepare.sh keeps {reference} "
                "from switched nodes, where it hands out devices beside the DRA driver: before the first wave plan again with "
                f"--format {KUSTOMIZE}."
            )
