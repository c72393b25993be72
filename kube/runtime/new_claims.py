"""Claims and templates that the API server has, and that the caches may not have yet."""

import re
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Final

import msgspec

from kube.api.core import PodResourceClaim
from kube.api.meta import ObjectMeta
from kube.api.schema import SUBDOMAIN
from kube.api.urls import RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from kube.client.client import Client

NEW: Final = timedelta(minutes=1)
"""The time after which a cache has an object, or never will: it cannot be read, or its watch is broken."""
_NAME: Final = re.compile(SUBDOMAIN)
_LONGEST_NAME: Final = 253


class _Object(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


class NewClaims:
    """Asks the API server for claims and templates by name; a list by name needs no right beside that of the caches."""

    def __init__(self, client: Client, now: Callable[[], datetime]) -> None:
        """Ask with a client.

        Args:
            now: Returns the time, with a time zone.
        """
        self._client = client
        self._now = now

    async def has_any(self, namespace: str, entries: Iterable[PodResourceClaim]) -> bool:
        """Return True if one of the claims and templates of a pod was created within the last minute.

        Args:
            namespace: The pod's namespace.
            entries: Entries of the pod's `spec.resourceClaims`.

        Raises:
            KubeError: The API server does not answer, or has no right answer.
        """
        for entry in entries:
            template = entry.resource_claim_template_name
            name = template or entry.resource_claim_name or ""
            if len(name) > _LONGEST_NAME or not _NAME.fullmatch(name):
                continue  # The API server rejects the pod.
            listing = await self._client.list(
                RESOURCE_CLAIM_TEMPLATES if template else RESOURCE_CLAIMS,
                _Object,
                namespace=namespace,
                field_selector=f"metadata.name={name}",
            )
            if any(self._is_new(own.metadata) for own in listing.items):
                return True
        return False

    def _is_new(self, metadata: ObjectMeta) -> bool:
        created = metadata.creation_timestamp
        return created is not None and self._now() - datetime.fromisoformat(created) < NEW
