"""Stored templates that give devices past the quotas on device keys of their namespace."""

from collections.abc import Mapping

import msgspec

from clusterstate.rule_cache import RuleCache
from controllers.audit.claim_blind import ClaimBlindObject
from kube.api.core import ResourceQuota
from kube.api.meta import decode
from kube.api.urls import RESOURCE_QUOTAS
from kube.cel.comparisons import drivers_named_by_class
from kube.client.client import Client
from kube.errors import Forbidden, NotFound
from quotas.resource_quotas.scopes import Quota, quota_of
from translation.cluster.snapshot import TemplateSummary, TranslationOptions, TranslationSnapshot
from translation.compiling.claims import requested_classes
from translation.preflight.quotas.uncounted_templates import find_uncounted_templates
from translation.profiles.profile import Profile


def summarize_templates(
    cache: RuleCache,
    profiles: Mapping[str, Profile],
    once_published: Mapping[str, frozenset[str]],
) -> TranslationSnapshot:
    """Return the stored templates, and the facts that decide their devices' drivers; no quotas.

    Args:
        profiles: Driver to profile.
        once_published: DeviceClass to the drivers that ever published devices of it.
    """
    context = cache.context()
    return TranslationSnapshot(
        profiles=profiles,
        once_published=once_published,
        extended_resources=context.extended_resources,
        class_drivers={
            name: drivers_named_by_class(device_class)
            for name, device_class in context.classes.items()
        },
        templates={
            name: TemplateSummary(digest="", classes=requested_classes(claim))
            for name, claim in context.templates.items()
        },
    )


async def list_evaded_quotas(
    client: Client, snapshot: TranslationSnapshot, options: TranslationOptions
) -> list[ClaimBlindObject]:
    """Return the stored quotas that templates of their namespace evade; none if they may not be listed.

    Args:
        snapshot: The snapshot from `summarize_templates`.

    Raises:
        KubeError: The API server does not answer as it should.
    """
    places = {namespace for namespace, _ in snapshot.templates}
    quotas: dict[str, dict[str, Quota]] = {}
    try:
        async for page in client.pages(RESOURCE_QUOTAS):
            for raw in page.items:
                try:
                    stored_quota = decode(bytes(raw), ResourceQuota)
                except (msgspec.DecodeError, RecursionError):
                    continue
                metadata = stored_quota.metadata
                if metadata.namespace in places:
                    quotas.setdefault(metadata.namespace, {})[metadata.name] = quota_of(
                        stored_quota
                    )
    except (Forbidden, NotFound):
        return []  # The audit lists them for their names, too, and has logged it.
    findings = find_uncounted_templates(msgspec.structs.replace(snapshot, quotas=quotas), options)
    return [
        ClaimBlindObject("ResourceQuota", namespace, name, finding)
        for (namespace, name), finding in sorted(findings.items())
    ]
