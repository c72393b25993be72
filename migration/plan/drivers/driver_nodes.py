"""The nodes that a DRA driver and its DeviceClasses have before the first wave, and the claims that it serves there. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from kube.manifests.source import SourceObject
from migration.cluster.evidence import list_at, mapping_at, text_map
from migration.plan.model.driver_charts import DriverNodes
from migration.plan.model.plan import is_name
from translation.profiles.profile import Profile


def read_driver_nodes(
    objects: Sequence[SourceObject], labels: Mapping[str, str]
) -> dict[str, DriverNodes]:
    """Return driver to its nodes of today, for the drivers that have any.

    Args:
        objects: The cluster's objects.
        labels: Driver to the label of its nodes, as `key=value`.
    """
    nodes_by_driver = {}
    for driver, label in labels.items():
        key, _, value = label.partition("=")
        entry = DriverNodes(
            labelled=tuple(sorted(_labelled(objects, key, value))),
            publishing=tuple(sorted(set(_publishing(objects, driver)))),
            claims=_claims_in_use(objects, driver),
        )
        if entry != DriverNodes():
            nodes_by_driver[driver] = entry
    return nodes_by_driver


def read_class_nodes(
    objects: Sequence[SourceObject], classes: Iterable[str], profiles: Iterable[Profile]
) -> dict[str, tuple[str, ...]]:
    """Return DeviceClass to the nodes that publish devices of its driver, for the classes with any.

    Args:
        objects: The cluster's objects.
        classes: The names of the classes, which may differ from those of their drivers.
        profiles: The profiles of all drivers.
    """
    drivers_by_class: dict[str, list[str]] = {name: [] for name in sorted(classes)}
    for profile in profiles:
        for name in drivers_by_class.keys() & profile.class_names():
            drivers_by_class[name].append(profile.driver)
    nodes_by_class = {
        name: {node for driver in drivers for node in _publishing(objects, driver)}
        for name, drivers in drivers_by_class.items()
    }
    return {name: tuple(sorted(nodes)) for name, nodes in nodes_by_class.items() if nodes}


def _labelled(objects: Iterable[SourceObject], key: str, value: str) -> Iterable[str]:
    for source in objects:
        is_node = (source.api_version, source.kind) == ("v1", "Node") and is_name(source.name)
        if is_node and text_map(source.document, "metadata", "labels").get(key) == value:
            yield source.name


def _publishing(objects: Iterable[SourceObject], driver: str) -> Iterable[str]:
    for source in objects:
        spec = mapping_at(source.document, "spec")
        name = spec.get("nodeName")
        is_own = source.kind == "ResourceSlice" and spec.get("driver") == driver
        if is_own and isinstance(name, str) and is_name(name):
            yield name


def _claims_in_use(objects: Iterable[SourceObject], driver: str) -> int:
    """Return the number of claims with devices of a driver that pods have."""
    return sum(
        source.kind == "ResourceClaim"
        and bool(list_at(source.document, "status", "reservedFor"))
        and any(
            mapping_at(result).get("driver") == driver
            for result in list_at(source.document, "status", "allocation", "devices", "results")
        )
        for source in objects
    )
