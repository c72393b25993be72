"""RDMA devices and cloud NICs: shares of pools, and numbers of whole interfaces.

* `rdma/<pool>`, of the RDMA shared device plugin: whatever the number, the container sees all HCAs
  of the pool. A number above 1 is more shares of the same pool, never a number of NICs. The SR-IOV
  device plugin may have the same prefix, and its numbers are of functions: names that the profile of
  that vocabulary lists are its own.
* `aliyun/erdma`: one of the 200 shares of every eRDMA interface of a node.
* `vpc.amazonaws.com/efa`: a number of EFA devices.
* `networking.gke.io.networks/<network>`: a number of interfaces to a network; `<network>.IP` beside it
  is the number of their addresses. Alone it is an address on a network of a shared interface, and
  no device.

The devices belong to the network namespace of the pod, so containers with shares of one pool use the
same devices. Not translated: alignment with GPUs, which none of these keys requests.

Source: Mellanox/k8s-rdma-shared-dev-plugin, pkg/resources/server.go; AliyunContainerService/
alibabacloud-erdma-controller, internal/deviceplugin; aws/eks-charts, aws-efa-k8s-device-plugin; GKE's
guides to multi-network pods, whose code is not public.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from findings.field_path import FieldPath
from findings.finding import Code, Finding, warning
from findings.text import printable
from translation.model.amounts import requested_amounts
from translation.model.intents import (
    DeviceFilter,
    DeviceKind,
    Intent,
    LegacyContainer,
    LegacyPod,
    Translation,
    Vocabulary,
)
from translation.model.keys import KeyOutcome, Place, Table, annotation, limit, names, prefixes

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
        KeyOutcome.COUNT,
        "all NICs that the name means (`allocationMode: All`), if the profile declares them "
        "shareable; else one of them, which leaves the host, with the warning `oneOfPool`; then a pod "
        "to which Multus attaches networks keeps the key and the device plugin (`multusBesidePool`). N is a number of shares of the pool, never of "
        "NICs: above 1 it counts as one share, with a warning. Containers with shares of one pool "
        "use the same request. A name that the profile of `sriov` lists is one of virtual functions",
    ),
    limit(
        ERDMA,
        "shares",
        KeyOutcome.COUNT,
        "the same with class `erdma.alibaba.dra.net`: the plugin divides every interface into 200 "
        "shares",
    ),
    limit(EFA, "devices", KeyOutcome.COUNT, "N devices of class `efa.networking.k8s.aws`"),
    limit(
        f"{GKE_PREFIX}*",
        "interfaces",
        KeyOutcome.COUNT,
        "N devices of class `mrdma.google.com` where the network is named `rdma-*`, else of "
        "`netdev.google.com`, with a warning: the driver does not publish a NIC's network",
    ),
    limit(
        f"{GKE_PREFIX}*{ADDRESS_SUFFIX}",
        "addresses",
        KeyOutcome.COMPANION,
        "together with the key of its network",
        case="beside its network",
    ),
    limit(
        f"{GKE_PREFIX}*{ADDRESS_SUFFIX}",
        "addresses",
        KeyOutcome.KEPT,
        "an address, not a device",
        case="alone",
    ),
    annotation(INTERFACES, KeyOutcome.KEPT, "for GKE's networks"),
    annotation(DEFAULT_INTERFACE, KeyOutcome.KEPT, "for GKE's networks"),
)


class _RequestedKey(msgspec.Struct, frozen=True, kw_only=True):
    """One key of one container with an amount above zero."""

    container: LegacyContainer
    name: str
    amount: int

    @property
    def path(self) -> FieldPath:
        return self.container.limit_path(self.name)


def translate(pod: LegacyPod) -> Translation:
    """Translate the interfaces of each container, and one share per pool for the pod."""
    keys_and_findings = [item for container in pod.containers for item in _read_keys(container)]
    requested_keys = [item for item in keys_and_findings if isinstance(item, _RequestedKey)]
    consumers = _pool_consumers(requested_keys)
    return Translation(
        intents=tuple(intent for key in requested_keys for intent in _intents(key, consumers)),
        findings=(
            *(item for item in keys_and_findings if isinstance(item, Finding)),
            *(finding for key in requested_keys for finding in _check_shares(key)),
        ),
    )


def _read_keys(container: LegacyContainer) -> Iterator[_RequestedKey | Finding]:
    for key, amount in requested_amounts(container):
        if isinstance(amount, Finding):
            yield amount
        elif not _is_address(key):
            yield _RequestedKey(container=container, name=key, amount=amount)


def _is_address(key: str) -> bool:
    return key.startswith(GKE_PREFIX) and key.endswith(ADDRESS_SUFFIX)


def _is_counted(key: str) -> bool:
    """Return True if the amount is a number of devices; else it is a number of shares."""
    return key == EFA or key.startswith(GKE_PREFIX)


def is_pool(key: str) -> bool:
    """Return True if a resource name requests shares of a pool; these leave its NICs on the host."""
    return key == ERDMA or key.startswith(POOL_PREFIX)


def _pool_consumers(requested_keys: list[_RequestedKey]) -> Mapping[str, list[_RequestedKey]]:
    """Return pool to its consumers; the first one requests the devices for all of them.

    That is an app container or sidecar where there is one, since it runs as long as the pod.
    """
    consumers: dict[str, list[_RequestedKey]] = {}
    for key in requested_keys:
        if not _is_counted(key.name):
            consumers.setdefault(key.name, []).append(key)
    return {pool: _long_running_first(keys) for pool, keys in consumers.items()}


def _long_running_first(keys: list[_RequestedKey]) -> list[_RequestedKey]:
    first = next((key for key in keys if _is_long_running(key.container)), keys[0])
    return [first, *(key for key in keys if key is not first)]


def _is_long_running(container: LegacyContainer) -> bool:
    return not container.init or container.sidecar


def _intents(key: _RequestedKey, consumers: Mapping[str, list[_RequestedKey]]) -> Iterator[Intent]:
    if _is_counted(key.name):
        yield _intent(key)
    elif key is consumers[key.name][0]:
        name = key.container.name
        names = dict.fromkeys(consumer.container.name for consumer in consumers[key.name])
        yield _intent(key, pool=True, also=tuple(other for other in names if other != name))


def _intent(key: _RequestedKey, *, pool: bool = False, also: tuple[str, ...] = ()) -> Intent:
    return Intent(
        container=key.container.name,
        kind=DeviceKind.NIC,
        count=1 if pool else key.amount,
        exclusive=not pool,
        pool=pool,
        also=also,
        filter=DeviceFilter(resource=key.name),
        paths={"count": key.path},
    )


def _check_shares(key: _RequestedKey) -> Iterator[Finding]:
    if key.amount > 1 and not _is_counted(key.name):
        yield warning(
            Code.CLAMPED,
            key.path,
            f"{key.amount} is a number of shares, not of NICs; the claim requests one",
            f"write 1; if it is a number of NICs, as the SR-IOV device plugin counts them, list {printable(key.name)} under "
            "resources in the profile of its driver",
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
