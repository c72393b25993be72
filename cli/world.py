"""Objects of files, or of a cluster, to the picture of a cluster that a translation looks at.

The pure part of what `--snapshot`, `--live` and `-f` mean together: an object of `-f` replaces its
namesake of the snapshot.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from cli.reading import KINDS, viewed
from cli.report import DEFAULT_NAMESPACE, Reported, namespace_of, reference
from kube.api.core import Namespace, ResourceQuota
from kube.api.meta import ApiStruct
from kube.api.resource import DeviceClass, ResourceClaimTemplate, ResourceSlice
from kube.files import SourceObject
from webhook.claims import template_digest
from webhook.extended_resources import extended_resources
from webhook.findings import Finding
from webhook.inventory import facts_by_driver, summary
from webhook.profile import Profile
from webhook.world import World

T = TypeVar("T", bound=ApiStruct)

_Placed = tuple[str, ApiStruct]
"""The namespace that an object is in, empty for none, and the object."""


def world_of(
    profiles: Mapping[str, Profile],
    given: Sequence[SourceObject],
    snapshot: Sequence[SourceObject] | None = None,
    *,
    namespace: str = DEFAULT_NAMESPACE,
) -> tuple[World, list[Reported]]:
    """Return the world, and what is wrong with objects of the snapshot.

    Faults of given objects are not told here: whoever goes through them tells.

    Args:
        given: What `-f` names.
        snapshot: The state of the cluster; None when nothing is known of it.
        namespace: Where objects go that do not say.
    """
    placed, faults = _read(_joined(snapshot or (), given, namespace), given, namespace)
    classes = [device_class for _, device_class in _of(placed, DeviceClass)]
    summaries = (summary(published, profiles) for _, published in _of(placed, ResourceSlice))
    quotas: dict[str, dict[str, frozenset[str]]] = {}
    for place, quota in _of(placed, ResourceQuota):
        quotas.setdefault(place, {})[quota.metadata.name] = frozenset(quota.spec.hard or {})
    world = World(
        profiles=profiles,
        facts=facts_by_driver(one for one in summaries if one is not None),
        classes=None if snapshot is None else frozenset(one.metadata.name for one in classes),
        extended_resources=extended_resources(classes),
        templates={
            (place, template.metadata.name): template_digest(template)
            for place, template in _of(placed, ResourceClaimTemplate)
        },
        quotas=quotas,
        namespaces={
            one.metadata.name: one.metadata.labels or {} for _, one in _of(placed, Namespace)
        },
    )
    return world, faults


def _of(placed: Iterable[_Placed], kind: type[T]) -> list[tuple[str, T]]:
    return [(place, value) for place, value in placed if isinstance(value, kind)]


def _joined(
    snapshot: Iterable[SourceObject], given: Iterable[SourceObject], namespace: str
) -> list[SourceObject]:
    """Return the objects of both, the later of namesakes; those without a name are all kept."""
    named: dict[tuple[str, ...], SourceObject] = {}
    for number, found in enumerate((*snapshot, *given)):
        # A version is a way to look at an object, so only the group counts.
        group = found.api_version.rpartition("/")[0]
        place = (group, found.kind, namespace_of(found, namespace), found.name)
        named[place if found.name else (str(number),)] = found
    return list(named.values())


def _read(
    objects: Iterable[SourceObject], given: Sequence[SourceObject], namespace: str
) -> tuple[list[_Placed], list[Reported]]:
    told_elsewhere = {id(found) for found in given}
    placed: list[_Placed] = []
    faults: list[Reported] = []
    for found in objects:
        kind = KINDS.get((found.api_version, found.kind))
        if kind is None:
            continue
        value = viewed(found.document, kind)
        if not isinstance(value, Finding):
            placed.append((namespace_of(found, namespace), value))
        elif id(found) not in told_elsewhere:
            faults.append(Reported(object=reference(found, namespace), finding=value))
    return placed, faults
