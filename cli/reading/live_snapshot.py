"""Every object of a running cluster that a command reads, for `drawbridge snapshot`. Read-only."""

from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from typing import Any

import msgspec

from answers.model.redaction import redact
from answers.model.snapshot_kinds import ALL_KINDS, CUSTOM_KINDS, KINDS, resource_name
from kube.api.meta import ApiStruct, decode_document, rfc3339
from kube.api.urls import Resource
from kube.client.client import Client
from kube.client.responses import decode_response
from kube.errors import Forbidden, KubeError, NotFound


class Unreadable(msgspec.Struct, frozen=True, kw_only=True):
    """A resource that the user may not list, or of another project that the API server fails to list."""

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


class _GroupVersion(ApiStruct, frozen=True, kw_only=True):
    """Source: apimachinery metav1.GroupVersionForDiscovery."""

    version: str = ""


class _Group(ApiStruct, frozen=True, kw_only=True):
    """The part of metav1.APIGroup that is read here."""

    versions: tuple[_GroupVersion, ...] | None = None


async def read_snapshot(
    client: Client, progress: Callable[[int], None], kinds: Collection[str] = ALL_KINDS
) -> LiveSnapshot:
    """List kinds, page by page.

    Args:
        kinds: The kinds to list, all of them in `ALL_KINDS`.
        progress: Called after each page with the number of objects so far.

    Raises:
        KubeError: The API server does not answer.
    """
    items: list[Mapping[str, Any]] = []
    unreadable: list[Unreadable] = []
    custom = [resource for kind in kinds for resource in CUSTOM_KINDS.get(kind, ())]
    groups = {resource.group for resource in custom}
    served = {
        group: versions
        for group in sorted(groups)
        if (versions := await _served_versions(client, group)) is not None
    }
    for kind in kinds:
        resources = (KINDS[kind],) if kind in KINDS else CUSTOM_KINDS[kind]
        before = len(items)
        try:
            async for page in _pages(client, kind, resources, served):
                items += page
                progress(len(items))
        except KubeError as refusal:
            if not _is_left_out(kind, refusal):
                raise
            del items[before:]
            unreadable.append(Unreadable(resource=resource_name(kind), reason=str(refusal)))
    version = await client.version()
    return LiveSnapshot(
        version=version,
        items=tuple(items),
        unreadable=tuple(unreadable),
        server=client.server,
        read_at=rfc3339(client.server_time) if client.server_time is not None else "",
        context=client.context,
    )


def _is_left_out(kind: str, refusal: KubeError) -> bool:
    """Return True if the other kinds are read without one that cannot be listed.

    The API server may fail for one kind of another project alone, such as by a webhook that converts its objects.
    """
    return isinstance(refusal, Forbidden) or (kind in CUSTOM_KINDS and bool(refusal.status))


async def may_have_group(client: Client, group: str) -> bool:
    """Return False for a missing group, and True for one without an answer of the API server, too."""
    return await _served_versions(client, group) != frozenset()


async def _served_versions(client: Client, group: str) -> frozenset[str] | None:
    """Return the served versions of a group; none for an unknown group, None if the API server does not tell."""
    try:
        text = await client.metrics(f"/apis/{group}")
        versions = decode_response(text.encode(), _Group).versions or ()
    except NotFound:
        return frozenset()
    except KubeError as refusal:
        if not refusal.status:
            raise
        return None
    return frozenset(entry.version for entry in versions)


async def _pages(
    client: Client,
    kind: str,
    resources: Collection[Resource],
    served: Mapping[str, Collection[str]],
) -> AsyncIterator[list[Mapping[str, Any]]]:
    """Yield the objects of a kind page by page, in the first of its versions that the cluster has; none without one.

    Args:
        served: Group to its versions; a group that is not among them has all.
    """
    for resource in resources:
        if resource.version not in served.get(resource.group, (resource.version,)):
            continue
        try:
            async for page in client.pages(resource):
                yield list(_documents(kind, resource, page.items))
        except NotFound:
            continue  # The cluster does not have this kind, or not in this version of its group.
        return


def _documents(
    kind: str, resource: Resource, page: tuple[msgspec.Raw, ...]
) -> Iterator[Mapping[str, Any]]:
    """Yield the items of a page with their type, since a list leaves it out."""
    group = f"{resource.group}/" if resource.group else ""
    for raw in page:
        document = decode_document(raw)
        yield redact(
            {"apiVersion": f"{group}{resource.version}", "kind": kind.partition(".")[0], **document}
        )
