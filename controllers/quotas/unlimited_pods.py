"""Pods that wait although no DeviceQuota limits them, as far as is known here.

The API server adds the gate because of a quota that it knows, and the watches of quotas and namespaces may be
behind the one of pods. So before such a pod is let through, all that was written before it has to be seen.
"""

from collections.abc import Mapping
from typing import Any, Final

from controllers.quotas.feed import QuotaFeed
from kube.api.meta import ObjectHead, decode, version_number
from kube.client.client import Client
from kube.runtime.informers import Subscription
from quotas.gates.tenants import limiting_accounts


class UnlimitedPods:
    """The namespaces of such pods, and the newest confirmed pod of each."""

    def __init__(self, client: Client, feed: QuotaFeed) -> None:
        """Begin without a namespace."""
        self._client: Final = client
        self._feed: Final = feed
        self._confirmed: dict[str, int] = {}

    def unconfirmed(self) -> Mapping[str, int]:
        """Return the namespaces that a new quota may limit, with the resourceVersion of the newest waiting pod."""
        usage = self._feed.usage
        newest: dict[str, int] = {}
        for (namespace, _), pod in usage.pods.items():
            if usage.waits(pod):
                version = version_number(pod.metadata.resource_version)
                newest[namespace] = max(newest.get(namespace, 0), version)
        unlimited = {
            namespace: version
            for namespace, version in newest.items()
            if not limiting_accounts(usage, namespace)
        }
        self._confirmed = {
            namespace: version
            for namespace, version in self._confirmed.items()
            if namespace in unlimited
        }
        return {
            namespace: version
            for namespace, version in unlimited.items()
            if version > self._confirmed.get(namespace, 0)
        }

    async def confirm(self, newest: Mapping[str, int]) -> None:
        """Wait until the quotas and labels of some namespaces are known as a quorum knows them now.

        Args:
            newest: The namespaces, with the newest pod of each that this is about.
        """
        await self._wait_seen(self._feed.quotas)
        for namespace in newest:
            await self._wait_seen(self._feed.namespaces, f"metadata.name={namespace}")
        self._confirmed |= newest

    async def _wait_seen(self, objects: Subscription[Any], field_selector: str = "") -> None:
        versions: dict[tuple[str, str], str] = {}
        async for page in self._client.pages(objects.resource, field_selector=field_selector):
            for raw in page.items:
                metadata = decode(raw, ObjectHead).metadata
                versions["", metadata.name] = metadata.resource_version
        await objects.wait_seen(versions)
