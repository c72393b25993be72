"""Every object of a running cluster that a command reads, for `drawbridge snapshot`. Read-only."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import msgspec

from answers.model.redaction import redact
from answers.model.snapshot_kinds import KINDS
from kube.api.meta import decode_pruned, rfc3339
from kube.api.urls import Resource
from kube.client.client import Client
from kube.errors import Forbidden, NotFound


class Unreadable(msgspec.Struct, frozen=True, kw_only=True):
    """A resource that the user may not list."""

    resource: str
    reason: str


class LiveSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The objects of a cluster, without the fields that `redact` leaves out.

    Attributes:
        version: The API server's version, such as `v1.37.1`.
        server: The address of the API server.
        read_at: The API server's time in RFC 3339; empty where it does not tell.
        context: The name of the kubeconfig's context; empty without one.
    """

    version: str
    items: tuple[Mapping[str, Any], ...]
    unreadable: tuple[Unreadable, ...]
    server: str
    read_at: str = ""
    context: str = ""


async def read_snapshot(
    client: Client, progress: Callable[[int], None], kinds: Collection[str] = KINDS
) -> LiveSnapshot:
    """List kinds, page by page.

    Args:
        kinds: The kinds to list, all of them in `KINDS`.
        progress: Called after each page with the number of objects so far.

    Raises:
        KubeError: The API server does not answer.
    """
    items: list[Mapping[str, Any]] = []
    unreadable: list[Unreadable] = []
    for kind in kinds:
        resource = KINDS[kind]
        try:
            async for page in client.pages(resource):
                items += _documents(kind, resource, page.items)
                progress(len(items))
        except NotFound:
            continue  # The cluster does not have this kind.
        except Forbidden as refusal:
            unreadable.append(Unreadable(resource=resource.plural, reason=str(refusal)))
    version = await client.version()
    return LiveSnapshot(
        version=version,
        items=tuple(items),
        unreadable=tuple(unreadable),
        server=client.server,
        read_at=rfc3339(client.server_time) if client.server_time is not None else "",
        context=client.context,
    )


def _documents(
    kind: str, resource: Resource, page: tuple[msgspec.Raw, ...]
) -> Iterator[Mapping[str, Any]]:
    """Yield the items of a page with their type, since a list leaves it out."""
    group = f"{resource.group}/" if resource.group else ""
    for raw in page:
        document: dict[str, Any] = decode_pruned(bytes(raw), dict[str, Any])
        yield redact(
            {"apiVersion": f"{group}{resource.version}", "kind": kind.partition(".")[0], **document}
        )
