"""What a pod asks of devices, free of any driver.

A vocabulary reads a `LegacyPod` and returns a `Translation`: intents, the keys that it consumed,
and findings. A `LegacyPod` holds just what vocabularies may look at, so that it can be made from a
live pod and, later and elsewhere, from the request annotation alone, with the same result.
"""

from collections.abc import Callable, Collection, Mapping
from enum import StrEnum

import msgspec

from kube.quantity import Quantity
from webhook.findings import Finding, amount_path
from webhook.keys import Table
from webhook.quotas import Scopes

MEBIBYTE = 2**20


class LegacyContainer(msgspec.Struct, frozen=True, kw_only=True):
    """One container, as far as device vocabularies look at it.

    Attributes:
        path: Where it stands, such as `spec.initContainers[1]`.
        init: Runs before the app containers; true for sidecars too.
        sidecar: An init container with restartPolicy Always: it runs beside the app containers.
        limits: Device keys only.
        requests: Device keys only; equal to the limits, or the pod is refused.
        environment: Variables that matter beside devices, where given as plain values.
    """

    name: str
    path: str
    limits: Mapping[str, Quantity]
    requests: Mapping[str, Quantity] = {}
    init: bool = False
    sidecar: bool = False
    privileged: bool = False
    environment: Mapping[str, str] = {}

    def limit_path(self, key: str) -> str:
        """Return the path of a limit, as the API server writes it."""
        return amount_path(self.path, "limits", key)


class LegacyPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod, as far as a translation looks at it: two pods that are equal here become the same.

    Attributes:
        containers: All of them, init containers first.
        annotations: Those that vocabularies or guards know; likewise labels and node_selector.
        scopes: By which ResourceQuotas choose the pods that they count.
    """

    containers: tuple[LegacyContainer, ...]
    annotations: Mapping[str, str] = {}
    labels: Mapping[str, str] = {}
    node_selector: Mapping[str, str] = {}
    node_name: str = ""
    scheduler_name: str = ""
    scopes: Scopes = Scopes()

    @property
    def asks_for_devices(self) -> bool:
        """Whether any container names a device key."""
        return any(container.limits or container.requests for container in self.containers)


class DeviceKind(StrEnum):
    """What kind of device; a profile says which class that is with its driver."""

    GPU = "gpu"
    MIG = "mig"
    NIC = "nic"
    FPGA = "fpga"


class Scope(StrEnum):
    """A part of a node that holds several devices."""

    NUMA_NODE = "numaNode"
    PCIE_ROOT = "pcieRoot"


class DeviceFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which devices will do. Models match as case-insensitive substrings, UUIDs exactly.

    None means no constraint; in the negative lists nothing excluded is an empty tuple. The profile
    knows which devices a legacy `resource` name stands for.
    """

    models: tuple[str, ...] | None = None
    not_models: tuple[str, ...] = ()
    uuids: tuple[str, ...] | None = None
    not_uuids: tuple[str, ...] = ()
    mig_profile: str | None = None
    resource: str | None = None


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """What one container wants of one kind of device; amounts are per device.

    Attributes:
        count: Number of different devices, at least 1.
        memory: Bytes; None when all of it, or `memory_percent` says.
        memory_percent: 1 to 99 percent of each device's memory; None when all or `memory` says.
        cores_percent: Percent of each device's compute, of a NIC or FPGA percent of the device; 0 is
            uncapped. None asks for no share.
        exclusive: Nobody else may use the device.
        replica: One time-sliced or MPS replica, of no particular size.
        through_mps: The sharing happens through an MPS server.
        same_numa: All devices of the container on one NUMA node.
        within: All of the devices are in one such part of a node; nothing else will do.
        every: All matching devices of a node, however many; `count` is 1 then.
        pool: A share of all matching devices of a node; of devices that cannot be shared, one.
        also: Further containers that use the same devices.
        paths: Aspect (a field of the filter, "count", "memory", "cores", "mode", "numa") to the
            path to blame for it.
    """

    container: str
    kind: DeviceKind
    count: int
    exclusive: bool = False
    memory: Quantity | None = None
    memory_percent: int | None = None
    cores_percent: int | None = None
    replica: bool = False
    through_mps: bool = False
    same_numa: bool = False
    within: Scope | None = None
    every: bool = False
    pool: bool = False
    also: tuple[str, ...] = ()
    filter: DeviceFilter = DeviceFilter()
    paths: Mapping[str, str] = {}

    @property
    def takes_all_memory(self) -> bool:
        """Whether all of each device's memory is meant."""
        return self.memory is None and self.memory_percent is None and not self.replica

    def path(self, aspect: str) -> str:
        """Return the path to blame for an aspect; the count's where nothing better is known."""
        return self.paths.get(aspect) or self.paths.get("count") or "spec"


class Alignment(msgspec.Struct, frozen=True, kw_only=True):
    """Devices of several kinds that belong together: each group of them under one PCIe root.

    Attributes:
        kinds: Which intents it is about, at least two. The devices of the first kind are dealt into
            groups, and the devices of the others join them.
        required: Every group has devices of every kind, and nothing else will do; otherwise groups
            are together where a node has room for that.
        path: To blame for it.
    """

    kinds: tuple[DeviceKind, ...]
    required: bool
    path: str


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """An environment variable that a container needs besides its devices."""

    container: str
    name: str
    value: str
    path: str


class Translation(msgspec.Struct, frozen=True, kw_only=True):
    """What a vocabulary made of a pod.

    Attributes:
        intents: In the order of the pod's containers.
        variables: To add where the container does not set them itself.
        alignment: Which of the intents must be, or should be, allocated together.
        findings: Errors refuse the pod; the rest is told to its author.
    """

    intents: tuple[Intent, ...] = ()
    variables: tuple[Variable, ...] = ()
    alignment: Alignment | None = None
    findings: tuple[Finding, ...] = ()


class Vocabulary(msgspec.Struct, frozen=True, kw_only=True):
    """One legacy vocabulary.

    Attributes:
        name: The module's name; what `--profile NAME=...` and the request annotation call it.
        table: Every name that it has to do with, and what becomes of it.
        keys: Resource names that it understands.
        key_prefixes: Beginnings of further resource names.
        foreign: Keys of others that it reads beside its own, to refuse them.
        takes_names: Profiles may give it further resource names.
        companion_suffix: End of names that mean something only beside the name without it.
        annotations: Pod annotations that its translation depends on.
        triggers: Pod annotations for which other webhooks add its keys, perhaps after ours.
        labels: Pod labels that its findings depend on; its intents never do.
        variables: Environment variables that it may add.
        whole_pod: Its devices are for every container, so those without keys are recorded, too.
        added_key: The key that the legacy system itself adds to a container which asks for devices
            without it, and which quotas therefore counted.
        translate: From a pod whose limits hold only this vocabulary's keys to its wishes. Never
            raises, whatever the pod says.
    """

    name: str
    table: Table = ()
    keys: tuple[str, ...]
    key_prefixes: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    takes_names: bool = False
    companion_suffix: str | None = None
    annotations: tuple[str, ...] = ()
    triggers: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    whole_pod: bool = False
    added_key: str | None = None
    translate: Callable[[LegacyPod], Translation]

    def speaks(self, key: str) -> bool:
        """Whether the resource name is one of this vocabulary's."""
        return key in self.keys or key.startswith(self.key_prefixes)

    def spoken(self, names: Collection[str]) -> frozenset[str]:
        """Return which resource names of one container are this vocabulary's."""
        end = self.companion_suffix
        return frozenset(
            name
            for name in names
            if self.speaks(name)
            and (end is None or not name.endswith(end) or name.removesuffix(end) in names)
        )
