"""The devices without a consumer at a stage of a migration. Pure."""

from typing import NamedTuple


class FreeDevices(NamedTuple):
    """Devices without a consumer, by the pods that may use them.

    Attributes:
        for_keys: The free devices of device plugins, for pods with device keys.
        for_claims: The free devices of DRA drivers, for pods with claims.
    """

    for_keys: int
    for_claims: int
