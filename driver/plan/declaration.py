"""The declared inventory: a YAML document with the devices of a node.

Its fields are the structs of this file, in camelCase. `driver.plan.declared` reads it.
"""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec

from driver.model.strict import Part
from kube.names import GROUP

API_VERSION: Final = f"{GROUP}/v1alpha1"
KIND: Final = "DeviceInventory"

Amount = str | int | float
"""A Kubernetes quantity: `80Gi`, `100`, `0.5`."""


class DeclaredVersion(Part, frozen=True, kw_only=True):
    """An attribute with a semantic version, so that selectors can compare it."""

    version: str


class DeclaredCapacity(Part, frozen=True, kw_only=True):
    """An amount of a device, and the parts of it that a request may take (KEP-5075).

    Attributes:
        value: All of it.
        default: The amount for a share that does not name the capacity; without it such a share
            takes everything.
        min: The least amount that a share takes.
        max: The greatest amount that a share may take.
        step: Amounts between `min` and `max` in multiples of this from `min` on; others are raised.
        valid_values: Instead of the range: the amounts that shares take, ascending.
    """

    value: Amount
    default: Amount | None = None
    min: Amount | None = None
    max: Amount | None = None
    step: Amount | None = None
    valid_values: tuple[Amount, ...] = ()


class DeclaredConsumption(Part, frozen=True, kw_only=True):
    """The counters that a device consumes of a counter set while it is allocated.

    Attributes:
        counter_set: A counter set of the same pool.
        counters: Counter to amount.
        compatibility_groups: Devices that take of one counter set at the same time must have a group
            in common.
    """

    counter_set: str
    counters: Mapping[str, Amount]
    compatibility_groups: tuple[str, ...] = ()


class DeclaredTaint(Part, frozen=True, kw_only=True):
    """Keeps claims without a toleration away."""

    key: str
    value: str = ""
    effect: Literal["NoSchedule", "NoExecute", "None"] = "NoSchedule"


class DeclaredNode(Part, frozen=True, kw_only=True):
    """A device node for the container; a text in its place is the path alone."""

    path: str
    host_path: str | None = None
    permissions: str = "rw"
    type: Literal["c", "b", "u", "p"] | None = None
    major: int | None = None
    minor: int | None = None


class DeclaredMount(Part, frozen=True, kw_only=True):
    """A file or folder of the node for the container, read-only unless `options` say otherwise."""

    host_path: str
    container_path: str | None = None
    options: tuple[str, ...] = ("ro", "nosuid", "nodev", "bind")


class DeclaredNetwork(Part, frozen=True, kw_only=True):
    """The data of a network device for the status of a claim."""

    interface_name: str = ""
    ips: tuple[str, ...] = ()
    hardware_address: str = ""


class DeclaredDevice(Part, frozen=True, kw_only=True):
    """One device.

    Attributes:
        name: A DNS label, unique on the node.
        attributes: Name to value, which selectors read. A name without a domain is in the driver's.
        capacity: Name to amount.
        shared: Several claims may hold it at the same time, each with a share of its capacity.
        consumers: The maximum number of shares; published as the capacity `consumers`, from which
            every share takes one.
        consumes: Counters of the pool that it takes, for devices that are parts of one card.
        taints: The taints, which hold for every claim; the driver adds others by itself.
        device_nodes: The device nodes for the container.
        mounts: The mounts for the container.
        environment: The environment variables for the container.
        cdi_devices: Devices of other CDI specs for the container, such as `nvidia.com/gpu=0`.
    """

    name: str
    attributes: Mapping[str, bool | int | str | DeclaredVersion] = {}
    capacity: Mapping[str, Amount | DeclaredCapacity] = {}
    shared: bool = False
    consumers: Annotated[int, msgspec.Meta(ge=1, le=2**31)] | None = None
    consumes: tuple[DeclaredConsumption, ...] = ()
    taints: tuple[DeclaredTaint, ...] = ()
    device_nodes: tuple[str | DeclaredNode, ...] = ()
    mounts: tuple[DeclaredMount, ...] = ()
    environment: Mapping[str, str] = {}
    cdi_devices: tuple[str, ...] = ()
    network: DeclaredNetwork | None = None


class DeclaredCounterSet(Part, frozen=True, kw_only=True):
    """Amounts that devices of a pool share (KEP-4815), such as the memory of one card."""

    name: str
    counters: Mapping[str, Amount]


class DeclaredPool(Part, frozen=True, kw_only=True):
    """Devices that are published together.

    Attributes:
        name: Published as `<node>/<name>`; left out, the pool is called as the node.
    """

    name: str = ""
    counter_sets: tuple[DeclaredCounterSet, ...] = ()
    devices: tuple[DeclaredDevice, ...] = ()


class DeclaredInventory(Part, frozen=True, kw_only=True):
    """The whole document.

    Attributes:
        metadata: Metadata for people; nothing reads it.
    """

    api_version: str
    kind: str
    metadata: Mapping[str, object] = {}
    pools: tuple[DeclaredPool, ...] = ()
