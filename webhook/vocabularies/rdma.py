"""RDMA devices and cloud NICs: shares of pools, and whole interfaces that are counted.

* `rdma/<pool>`, of the RDMA shared device plugin: whatever its number, the container sees all HCAs
  of the pool. A number above 1 is more shares of the same pool, never a number of NICs.
* `aliyun/erdma`: one of 200 shares that every eRDMA interface of a node has.
* `vpc.amazonaws.com/efa`: that many EFA devices.
* `networking.gke.io.networks/<network>`: that many interfaces to a network; `<network>.IP` beside it
  counts their addresses. Alone it is an address on a network of a shared interface, and no device.

The devices belong to the network namespace of the pod, so containers that hold shares of one pool
use the same. Not translated: alignment with GPUs, which none of these keys asks for.

Source: Mellanox/k8s-rdma-shared-dev-plugin, pkg/resources/server.go; AliyunContainerService/
alibabacloud-erdma-controller, internal/deviceplugin; aws/eks-charts, aws-efa-k8s-device-plugin; GKE's
guides to multi-network pods, whose code is not public.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from webhook.amounts import whole
from webhook.findings import Code, Finding, warning
from webhook.intents import (
    DeviceFilter,
    DeviceKind,
    Intent,
    LegacyContainer,
    LegacyPod,
    Translation,
    Vocabulary,
)
from webhook.keys import Fate, Place, Table, annotation, limit, names, prefixes

POOL_PREFIX: Final = "rdma/"
ERDMA: Final = "aliyun/erdma"
EFA: Final = "vpc.amazonaws.com/efa"
GKE_PREFIX: Final = "networking.gke.io.networks/"
ADDRESS_SUFFIX: Final = ".IP"
INTERFACES: Final = "networking.gke.io/interfaces"
"""A pod annotation that lists GKE's networks; GKE's webhook adds keys for them."""
DEFAULT_INTERFACE: Final = "networking.gke.io/default-interface"

TABLE: Final[Table] = (
    limit(
        f"{POOL_PREFIX}*",
        "shares",
        Fate.COUNT,
        "all NICs that the name stands for (`allocationMode: All`), if the profile says that they "
        "can be shared; else one of them, with a warning. N counts shares of the pool, never NICs: "
        "above 1 is one share, with a warning. Containers with shares of one pool use the same "
        "request",
    ),
    limit(
        ERDMA,
        "shares",
        Fate.COUNT,
        "the same of class `erdma.alibaba.dra.net`: the plugin hands every interface out in 200 "
        "shares",
    ),
    limit(EFA, "devices", Fate.COUNT, "N devices of class `efa.networking.k8s.aws`"),
    limit(
        f"{GKE_PREFIX}*",
        "interfaces",
        Fate.COUNT,
        "N devices of class `mrdma.google.com` where the network is called `rdma-*`, else of "
        "`netdev.google.com`, with a warning: which network a NIC is on is not said by that name",
    ),
    limit(
        f"{GKE_PREFIX}*{ADDRESS_SUFFIX}",
        "addresses",
        Fate.COMPANION,
        "with the key of its network",
        case="beside its network",
    ),
    limit(
        f"{GKE_PREFIX}*{ADDRESS_SUFFIX}",
        "addresses",
        Fate.KEPT,
        "an address and no device",
        case="alone",
    ),
    annotation(INTERFACES, Fate.KEPT, "for GKE's networks"),
    annotation(DEFAULT_INTERFACE, Fate.KEPT, "for GKE's networks"),
)


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One key of one container, above zero."""

    container: LegacyContainer
    key: str
    amount: int

    @property
    def path(self) -> str:
        return self.container.limit_path(self.key)


def translate(pod: LegacyPod) -> Translation:
    """Return the interfaces that each container asks for, and a share of each pool for the pod."""
    read = [each for container in pod.containers for each in _read(container)]
    asked = [each for each in read if isinstance(each, _Asked)]
    holders = _pool_holders(asked)
    return Translation(
        intents=tuple(intent for each in asked for intent in _intents(each, holders)),
        findings=(
            *(each for each in read if isinstance(each, Finding)),
            *(finding for each in asked for finding in _clamped(each)),
        ),
    )


def _read(container: LegacyContainer) -> Iterator[_Asked | Finding]:
    for key in sorted(container.limits):
        amount = whole(container, key)
        if isinstance(amount, Finding):
            yield amount
        elif amount and not _is_address(key):
            yield _Asked(container=container, key=key, amount=amount)


def _is_address(key: str) -> bool:
    return key.startswith(GKE_PREFIX) and key.endswith(ADDRESS_SUFFIX)


def _is_counted(key: str) -> bool:
    """Whether the amount is a number of devices; else it is one of shares."""
    return key == EFA or key.startswith(GKE_PREFIX)


def _pool_holders(asked: list[_Asked]) -> Mapping[str, list[_Asked]]:
    """Return pool to who holds shares of it: first who asks for all, the others in the pod's order.

    Who asks is an app container or sidecar where there is one, since the devices stay as long.
    """
    holders: dict[str, list[_Asked]] = {}
    for each in asked:
        if not _is_counted(each.key):
            holders.setdefault(each.key, []).append(each)
    return {key: _stays_first(found) for key, found in holders.items()}


def _stays_first(holders: list[_Asked]) -> list[_Asked]:
    first = next((each for each in holders if _stays(each.container)), holders[0])
    return [first, *(each for each in holders if each is not first)]


def _stays(container: LegacyContainer) -> bool:
    return not container.init or container.sidecar


def _intents(asked: _Asked, holders: Mapping[str, list[_Asked]]) -> Iterator[Intent]:
    if _is_counted(asked.key):
        yield _intent(asked)
    elif asked is holders[asked.key][0]:
        name = asked.container.name
        names = dict.fromkeys(each.container.name for each in holders[asked.key])
        yield _intent(asked, pool=True, also=tuple(other for other in names if other != name))


def _intent(asked: _Asked, *, pool: bool = False, also: tuple[str, ...] = ()) -> Intent:
    return Intent(
        container=asked.container.name,
        kind=DeviceKind.NIC,
        count=1 if pool else asked.amount,
        exclusive=not pool,
        pool=pool,
        also=also,
        filter=DeviceFilter(resource=asked.key),
        paths={"count": asked.path},
    )


def _clamped(asked: _Asked) -> Iterator[Finding]:
    if asked.amount > 1 and not _is_counted(asked.key):
        yield warning(
            Code.CLAMPED,
            asked.path,
            f"{asked.amount} is a number of shares, not of NICs; asking for one",
        )


VOCABULARY: Final = Vocabulary(
    name="rdma",
    table=TABLE,
    keys=names(TABLE, Place.LIMIT),
    key_prefixes=prefixes(TABLE, Place.LIMIT),
    takes_names=True,
    companion_suffix=ADDRESS_SUFFIX,
    triggers=(INTERFACES,),
    translate=translate,
)
