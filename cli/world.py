"""Objects of files, or of a cluster, to the picture of a cluster that a translation looks at.

The pure part of what `--snapshot`, `--live` and `-f` mean together: an object of `-f` replaces its
namesake of the snapshot.
"""

from collections.abc import Mapping, Sequence

from cli.objects import FoundObject, joined, of_kind, placed
from cli.reading import KINDS
from cli.report import DEFAULT_NAMESPACE, Reported
from kube.api.core import Namespace, ResourceQuota
from kube.api.resource import DeviceClass, ResourceClaimTemplate, ResourceSlice
from webhook.claims import template_classes, template_digest
from webhook.extended_resources import extended_resources
from webhook.inventory import facts_by_driver, summary
from webhook.profile import Profile
from webhook.quotas import Quota, quota_of
from webhook.world import Template, World


def world_of(
    profiles: Mapping[str, Profile],
    given: Sequence[FoundObject],
    snapshot: Sequence[FoundObject] | None = None,
    *,
    namespace: str = DEFAULT_NAMESPACE,
    is_whole: bool = False,
) -> tuple[World, list[Reported]]:
    """Return the world, and what is wrong with objects of the snapshot.

    Faults of given objects are not told here: whoever goes through them tells.

    Args:
        given: What `-f` names.
        snapshot: The state of the cluster; None when nothing is known of it.
        namespace: Where objects go that do not say.
        is_whole: Nothing was left out of the snapshot. Else one without any DeviceClass does not say
            that there is none: whoever took it asked for other kinds.
    """
    everything = joined(snapshot or (), given, namespace)
    known, faults = placed(everything, KINDS, namespace, told=given)
    classes = [device_class for _, device_class in of_kind(known, DeviceClass)]
    tells_classes = is_whole or any(one.kind == "DeviceClass" for one in snapshot or ())
    summaries = (summary(published, profiles) for _, published in of_kind(known, ResourceSlice))
    quotas: dict[str, dict[str, Quota]] = {}
    for place, quota in of_kind(known, ResourceQuota):
        quotas.setdefault(place, {})[quota.metadata.name] = quota_of(quota)
    world = World(
        profiles=profiles,
        facts=facts_by_driver(one for one in summaries if one is not None),
        classes=frozenset(one.metadata.name for one in classes) if tells_classes else None,
        extended_resources=extended_resources(classes),
        templates={
            (place, template.metadata.name): Template(
                digest=template_digest(template), classes=template_classes(template)
            )
            for place, template in of_kind(known, ResourceClaimTemplate)
        },
        quotas=quotas,
        namespaces={
            one.metadata.name: one.metadata.labels or {} for _, one in of_kind(known, Namespace)
        },
    )
    return world, faults
