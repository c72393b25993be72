"""Objects about the bridge, read from a running cluster."""

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from answers.model.bridge import BridgeObjects
from kube.api.ownership import OWNERSHIP, AllocatorOwnership
from kube.api.urls import (
    ALLOCATOR_OWNERSHIPS,
    VALIDATING_ADMISSION_POLICIES,
    VALIDATING_ADMISSION_POLICY_BINDINGS,
    Resource,
)
from kube.names import BRIDGE_LEASE, FENCE, HOLDER_FENCE, NAMESPACE

if TYPE_CHECKING:
    from kube.client.client import Client

_FENCE_PARTS: Final = (
    ("ValidatingAdmissionPolicyBinding", VALIDATING_ADMISSION_POLICY_BINDINGS, FENCE),
    ("ValidatingAdmissionPolicy", VALIDATING_ADMISSION_POLICIES, HOLDER_FENCE),
    ("ValidatingAdmissionPolicyBinding", VALIDATING_ADMISSION_POLICY_BINDINGS, HOLDER_FENCE),
)
"""The parts of the fence besides its first policy: kind, resource and name."""


async def read_bridge(kubeconfig: str | None, context: str | None) -> BridgeObjects:
    """Read the fence, the ownership and the Lease of a cluster.

    Raises:
        KubeError: The API server does not answer, or refuses one of them.
    """
    # The client takes twice as long to import as all the rest, and files need none.
    from kube.client.client import Client  # noqa: PLC0415
    from kube.errors import Forbidden, NotFound  # noqa: PLC0415
    from kube.runtime.leader import LEASES, Lease, LeaseSpec  # noqa: PLC0415

    async with await Client.from_kubeconfig(kubeconfig, context) as client:
        fence: dict[str, Any] | None = None
        lease = LeaseSpec()
        has_ownership, is_ownership_served, version = False, True, ""
        missing_parts: list[str] = []
        parts: dict[str, dict[str, Any]] = {}
        with suppress(NotFound):
            fence = await client.get(VALIDATING_ADMISSION_POLICIES, FENCE, dict[str, Any])
        for kind, resource, name in _FENCE_PARTS:
            try:
                parts[f"{kind}/{name}"] = await client.get(resource, name, dict[str, Any])
            except NotFound:
                missing_parts.append(f"{kind}/{name}")
            except Forbidden:
                continue  # It is not known to be missing.
        try:
            await client.get(ALLOCATOR_OWNERSHIPS, OWNERSHIP, AllocatorOwnership)
            has_ownership = True
        except NotFound:
            is_ownership_served = await _is_served(client, ALLOCATOR_OWNERSHIPS)
        with suppress(NotFound, Forbidden):
            lease = (await client.get(LEASES, BRIDGE_LEASE, Lease, namespace=NAMESPACE)).spec
        with suppress(Forbidden):
            version = await client.version()
        read_at = client.server_time
    return BridgeObjects(
        is_read=True,
        is_ownership_served=is_ownership_served,
        has_ownership=has_ownership,
        fence=fence,
        missing_parts=tuple(missing_parts),
        parts=parts,
        holder=lease.holder_identity or "",
        renewed=lease.renew_time or "",
        lease_duration_s=lease.lease_duration_seconds or 0,
        read_at=read_at,
        server_version=version,
    )


async def _is_served(client: "Client", resource: Resource) -> bool:
    """Return True if the API server has a resource: it finds the list of one, even an empty list."""
    from kube.errors import Forbidden, NotFound  # noqa: PLC0415

    try:
        async for _ in client.pages(resource):
            return True
    except NotFound:
        return False
    except Forbidden:
        return True  # It is not known to be missing.
    return True
