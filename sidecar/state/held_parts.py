"""An index of devices held back, by pod, claim, share and device: a change reads its own ones only."""

from collections.abc import Iterable
from typing import Final, TypeVar

from kube.api.ownership import HeldBackClaim
from sidecar.ownership.held_back import (
    DeviceName,
    HeldDevice,
    HeldKey,
    Share,
    devices_of,
    held_key,
    share_of,
)

K = TypeVar("K")
Index = dict[K, dict[HeldKey, None]]
"""Keys of parts, the earliest first."""
AlikeKey = tuple[str, str, tuple[Share, ...]]
"""UID of a claim, node, and shares: the same for pods that share an allocation there."""


class HeldParts:
    """Parts of claims: the devices of one claim for one pod.

    Attributes:
        by_key: All parts, the earliest first.
        shares: The number of shares of each device that a namespace has held back on a node; pods that
            share an allocation count once.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self.by_key: Final[dict[HeldKey, HeldBackClaim]] = {}
        self.shares: Final[dict[HeldDevice, int]] = {}
        self._of_pod: Index[str] = {}
        self._of_claim: Index[str] = {}
        self._of_share: Index[tuple[str, Share]] = {}
        self._of_device: Index[DeviceName] = {}
        self._alike: Index[AlikeKey] = {}
        self._gone: Index[AlikeKey] = {}

    def put(self, part: HeldBackClaim) -> None:
        """Take a part, or another end of one with the same devices."""
        key = held_key(part)
        if key in self.by_key:
            self.by_key[key] = part
            return
        self.by_key[key] = part
        alike = alike_key(part)
        if alike not in self._alike:
            self._count(part, 1)
        _add(self._alike, alike, key)
        _add(self._of_pod, part.pod_uid, key)
        _add(self._of_claim, part.claim_uid, key)
        for share in shares_of(part):
            _add(self._of_share, (part.claim_uid, share), key)
        for device in devices_of(part):
            _add(self._of_device, device, key)

    def remove(self, part: HeldBackClaim) -> None:
        """Forget a part."""
        key = held_key(part)
        del self.by_key[key]
        alike = alike_key(part)
        _remove(self._alike, alike, key)
        if key in self._gone.get(alike, ()):
            _remove(self._gone, alike, key)
        _remove(self._of_pod, part.pod_uid, key)
        _remove(self._of_claim, part.claim_uid, key)
        for share in shares_of(part):
            _remove(self._of_share, (part.claim_uid, share), key)
        for device in devices_of(part):
            _remove(self._of_device, device, key)
        if alike not in self._alike:
            self._count(part, -1)

    def of_pod(self, uid: str) -> tuple[HeldBackClaim, ...]:
        """Return the parts that a pod holds."""
        return tuple(self.by_key[key] for key in self._of_pod.get(uid, ()))

    def of_claim(self, uid: str) -> tuple[HeldBackClaim, ...]:
        """Return the parts of a claim, the earliest first."""
        return tuple(self.by_key[key] for key in self._of_claim.get(uid, ()))

    def add_gone(self, part: HeldBackClaim) -> tuple[HeldBackClaim, ...]:
        """Take note that the pod of a part is gone, and return the parts like it of pods that are gone."""
        alike = alike_key(part)
        _add(self._gone, alike, held_key(part))
        return tuple(self.by_key[key] for key in self._gone[alike])

    def has_claim(self, uid: str) -> bool:
        """Return True if something of a claim is held back."""
        return uid in self._of_claim

    def has_device(self, device: DeviceName) -> bool:
        """Return True if a device is held back."""
        return device in self._of_device

    def first_of_shares(self, claim_uid: str, shares: Iterable[Share]) -> tuple[HeldBackClaim, ...]:
        """Return the earliest part with each of these shares of a claim; each part once."""
        indexes = (self._of_share.get((claim_uid, share)) for share in shares)
        keys = dict.fromkeys(next(iter(index)) for index in indexes if index is not None)
        return tuple(self.by_key[key] for key in keys)

    def first_of_devices(self, devices: Iterable[DeviceName]) -> tuple[HeldBackClaim, ...]:
        """Return the earliest part with each of these devices; each part once."""
        indexes = (self._of_device.get(device) for device in devices)
        keys = dict.fromkeys(next(iter(index)) for index in indexes if index is not None)
        return tuple(self.by_key[key] for key in keys)

    def _count(self, part: HeldBackClaim, change: int) -> None:
        for device in devices_of(part):
            held_device = HeldDevice(part.namespace, part.node, device)
            count = self.shares.get(held_device, 0) + change
            if count:
                self.shares[held_device] = count
            else:
                del self.shares[held_device]


def alike_key(part: HeldBackClaim) -> AlikeKey:
    """Return the key of all parts that hold the same of a claim on a node."""
    return part.claim_uid, part.node, tuple(map(share_of, part.devices))


def shares_of(part: HeldBackClaim) -> frozenset[Share]:
    """Return the shares of a part."""
    return frozenset(map(share_of, part.devices))


def _add(index: Index[K], of: K, key: HeldKey) -> None:
    index.setdefault(of, {})[key] = None


def _remove(index: Index[K], of: K, key: HeldKey) -> None:
    keys = index[of]
    del keys[key]
    if not keys:
        del index[of]
