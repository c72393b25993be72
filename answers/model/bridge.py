"""Objects about the bridge that only a running cluster has."""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    pass


class BridgeObjects(msgspec.Struct, frozen=True, kw_only=True):
    """The objects that only a running cluster has.

    Attributes:
        is_read: It was read; a snapshot does not have it.
        is_ownership_served: The API server serves AllocatorOwnerships: their definition is installed.
        has_ownership: There is an AllocatorOwnership `default`.
        fence: The stored policy; None if it does not exist.
        missing_parts: `Kind/name` of what else belongs to the fence and does not exist.
        parts: `Kind/name` to what else belongs to the fence, as it is stored.
        holder: Identity of the process that holds the Lease; empty for none.
        renewed: The time of the last renewal according to the Lease.
        lease_duration_s: The time for which a renewal counts, in seconds.
        read_at: The time by the API server's clock; None if nothing was read.
        server_version: The API server's version; empty if it could not be read.
    """

    is_read: bool = False
    is_ownership_served: bool = True
    has_ownership: bool = False
    fence: Mapping[str, Any] | None = None
    missing_parts: tuple[str, ...] = ()
    parts: Mapping[str, Mapping[str, Any]] = {}
    holder: str = ""
    renewed: str = ""
    lease_duration_s: int = 0
    read_at: datetime | None = None
    server_version: str = ""
