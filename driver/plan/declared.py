"""The devices of the node in a declared inventory, or all of its faults.

Everything is checked that the API server would refuse of the slices later, and what it takes although
no claim could ever use it, so that the person who edits the file is told.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from driver.model import limits
from driver.model.inventory import (
    DeviceNode,
    Injection,
    Inventory,
    Mount,
    NodeDevice,
    NodePool,
)
from driver.model.names import (
    is_cdi_device,
    is_dns_label,
    is_label_key,
    is_label_value,
    is_plain_path,
    is_qualified_name,
    is_subdomain,
    is_variable,
)
from driver.model.strict import read_strictly
from driver.plan.capacity_policy import policy_faults
from driver.plan.declaration import (
    API_VERSION,
    KIND,
    Amount,
    DeclaredCapacity,
    DeclaredConsumption,
    DeclaredDevice,
    DeclaredInventory,
    DeclaredMount,
    DeclaredNode,
    DeclaredPool,
    DeclaredTaint,
    DeclaredVersion,
)
from kube.api.resource import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceCounterConsumption,
    DeviceTaint,
    NetworkDeviceData,
)
from kube.cel.semver import Semver
from kube.errors import FieldError, QuantityError
from kube.names import GROUP
from kube.quantity import ZERO, Quantity

CONSUMERS: Final = "consumers"
"""The capacity of which every share of a device takes one."""

OWN_VARIABLES: Final = "DRAWBRIDGE_"
"""The prefix of the driver's own environment variables."""

_MAX_INT64: Final = 2**63 - 1
_PERMISSIONS: Final = frozenset("rwm")
_TOPOLOGY: Final = {
    "resource.kubernetes.io/numaNode": -1,
    "resource.kubernetes.io/pcieRoot": "",
    "resource.kubernetes.io/pciBusID": "",
}
"""Standard attribute to the value by which the kernel says that it does not know. Two devices with it
would count as close to each other."""


def read_inventory(document: object) -> Inventory | tuple[FieldError, ...]:
    """Return the inventory of a document, or the errors in the document.

    Args:
        document: The output of a YAML reader: dicts, lists, texts, numbers and booleans.
    """
    head = (document.get("apiVersion"), document.get("kind")) if isinstance(document, dict) else ()
    if head != (API_VERSION, KIND):
        fix = f"begin it with apiVersion: {API_VERSION} and kind: {KIND}"
        return (FieldError(path="", message="the document is no inventory", fix=fix),)
    inventory = read_strictly(document, DeclaredInventory)
    if not isinstance(inventory, DeclaredInventory):
        return inventory
    total = sum(len(pool.devices) for pool in inventory.pools)
    if total > limits.DEVICES:
        message = f"has {total} devices in all, above {limits.DEVICES}"
        fix = "one node has one card more or less; list what one node has"
        return (FieldError(path="pools", message=message, fix=fix),)
    reading = _Reading()
    pools = [reading.pool(pool, f"pools[{index}]") for index, pool in enumerate(inventory.pools)]
    return tuple(reading.faults) or Inventory(pools=tuple(pools))


class _Reading:
    """A reader of the parts of a document that collects errors and goes on."""

    def __init__(self) -> None:
        self.faults: list[FieldError] = []
        self._pools: set[str] = set()
        self._devices: dict[str, str] = {}

    def pool(self, declared_pool: DeclaredPool, path: str) -> NodePool:
        if declared_pool.name in self._pools:
            name = declared_pool.name or "a pool without a name"
            self._fault(f"{path}.name", f"{name} is there already", "give each pool its own name")
        self._pools.add(declared_pool.name)
        if declared_pool.name and not is_subdomain(declared_pool.name):
            self._fault(f"{path}.name", f"{declared_pool.name!r} is no name", "write it as `nics`")
        counter_sets = self._counter_sets(declared_pool, f"{path}.counterSets")
        devices = [
            self._device(device, counter_sets, f"{path}.devices[{index}]")
            for index, device in enumerate(declared_pool.devices)
        ]
        return NodePool(
            name=declared_pool.name,
            devices=tuple(devices),
            counter_sets=tuple(counter_sets.values()),
        )

    def _counter_sets(self, declared_pool: DeclaredPool, path: str) -> Mapping[str, CounterSet]:
        counter_sets: dict[str, CounterSet] = {}
        for index, counter_set in enumerate(declared_pool.counter_sets):
            here = f"{path}[{index}]"
            self._label(counter_set.name, f"{here}.name")
            if counter_set.name in counter_sets:
                self._fault(f"{here}.name", f"{counter_set.name} is there already", "")
            counters = self._counters(counter_set.counters, f"{here}.counters")
            counter_sets[counter_set.name] = CounterSet(name=counter_set.name, counters=counters)
        return counter_sets

    def _counters(self, amounts: Mapping[str, Amount], path: str) -> Mapping[str, Counter]:
        self._at_most(len(amounts), limits.COUNTERS, path, "counters")
        if not amounts:
            self._fault(path, "is empty", "name at least one counter")
        for name in amounts:
            self._label(name, f"{path}[{name}]")
        return {
            name: Counter(value=self._amount(amount, f"{path}[{name}]"))
            for name, amount in amounts.items()
        }

    # --- one device -----------------------------------------------------------------------------

    def _device(
        self, declared_device: DeclaredDevice, counter_sets: Mapping[str, CounterSet], path: str
    ) -> NodeDevice:
        self._label(declared_device.name, f"{path}.name")
        first = self._devices.setdefault(declared_device.name, path)
        if first != path:
            message = f"{declared_device.name} is the name of {first} already"
            self._fault(f"{path}.name", message, "names are unique on a node, in all its pools")
        attributes = self._attributes(declared_device, f"{path}.attributes")
        capacity = self._capacities(declared_device, f"{path}.capacity")
        size = len(attributes) + len(capacity)
        self._at_most(size, limits.ATTRIBUTES_AND_CAPACITIES, path, "attributes and capacities")
        device = Device(
            name=declared_device.name,
            attributes=attributes or None,
            capacity=capacity or None,
            consumes_counters=self._consumptions(declared_device, counter_sets, f"{path}.consumes"),
            taints=self._taints(declared_device.taints, f"{path}.taints"),
            allow_multiple_allocations=declared_device.shared or None,
        )
        return NodeDevice(
            device=device,
            injection=self._injection(declared_device, path),
            network=None
            if declared_device.network is None
            else NetworkDeviceData(
                interface_name=declared_device.network.interface_name,
                ips=declared_device.network.ips or None,
                hardware_address=declared_device.network.hardware_address,
            ),
        )

    def _attributes(self, declared_device: DeclaredDevice, path: str) -> dict[str, DeviceAttribute]:
        attributes: dict[str, DeviceAttribute] = {}
        for name, value in declared_device.attributes.items():
            here = f"{path}[{name}]"
            self._qualified_name(name, here)
            if name in _TOPOLOGY and value == _TOPOLOGY[name]:
                message = f"{value!r} stands for unknown, and would equal that of other devices"
                self._fault(here, message, "leave it out")
            match value:
                case bool():
                    attributes[name] = DeviceAttribute(bool_=value)
                case int():
                    if abs(value) > _MAX_INT64:
                        self._fault(
                            here, f"{value} does not fit into 64 bits", "write it as a text"
                        )
                    attributes[name] = DeviceAttribute(int_=value)
                case str():
                    self._short(value, here)
                    attributes[name] = DeviceAttribute(string=value)
                case DeclaredVersion():
                    self._short(value.version, here)
                    try:
                        Semver.parse(value.version)
                    except ValueError as error:
                        self._fault(here, str(error), "or publish it as a text")
                    attributes[name] = DeviceAttribute(version=value.version)
        return attributes

    def _capacities(self, declared_device: DeclaredDevice, path: str) -> dict[str, DeviceCapacity]:
        capacities: dict[str, DeviceCapacity] = {}
        for name, value in declared_device.capacity.items():
            here = f"{path}[{name}]"
            self._qualified_name(name, here)
            capacities[name] = self._capacity(value, here)
            if capacities[name].request_policy is not None and not declared_device.shared:
                fix = "write the amount alone, or shared: true beside capacity"
                self._fault(here, "a request policy is for devices that are shared", fix)
        if declared_device.consumers is not None:
            if CONSUMERS in capacities:
                self._fault(f"{path}[{CONSUMERS}]", "stands for the field consumers", "write one")
            if not declared_device.shared:
                consumers = f"{path.removesuffix('.capacity')}.consumers"
                self._fault(consumers, "the device is not shared", "add shared: true, or remove it")
            step = Quantity(1)
            capacities[CONSUMERS] = DeviceCapacity(
                value=Quantity(declared_device.consumers),
                request_policy=CapacityRequestPolicy(default=step, valid_values=(step,)),
            )
        return capacities

    def _capacity(self, declared_capacity: Amount | DeclaredCapacity, path: str) -> DeviceCapacity:
        if not isinstance(declared_capacity, DeclaredCapacity):
            return DeviceCapacity(value=self._amount(declared_capacity, path))
        value = self._amount(declared_capacity.value, f"{path}.value")
        fields = {
            name: self._amount(amount, f"{path}.{name}")
            for name, amount in (
                ("default", declared_capacity.default),
                ("min", declared_capacity.min),
                ("max", declared_capacity.max),
                ("step", declared_capacity.step),
            )
            if amount is not None
        }
        valid = [
            self._amount(amount, f"{path}.validValues[{index}]")
            for index, amount in enumerate(declared_capacity.valid_values)
        ]
        default = fields.pop("default", None)
        if default is None and not fields and not valid:
            return DeviceCapacity(value=value)
        policy = CapacityRequestPolicy(
            default=default,
            valid_values=tuple(valid) or None,
            valid_range=CapacityRequestPolicyRange(**fields) if fields else None,
        )
        self.faults += policy_faults(value, policy, path)
        return DeviceCapacity(value=value, request_policy=policy)

    def _consumptions(
        self, declared_device: DeclaredDevice, counter_sets: Mapping[str, CounterSet], path: str
    ) -> tuple[DeviceCounterConsumption, ...] | None:
        self._at_most(len(declared_device.consumes), limits.CONSUMED_SETS, path, "counter sets")
        names = [consumption.counter_set for consumption in declared_device.consumes]
        for index, name in enumerate(names):
            if name in names[:index]:
                self._fault(f"{path}[{index}].counterSet", f"{name} is there already", "")
        consumptions = [
            self._consumption(consumption, counter_sets, f"{path}[{index}]")
            for index, consumption in enumerate(declared_device.consumes)
        ]
        return tuple(consumptions) or None

    def _consumption(
        self,
        declared_consumption: DeclaredConsumption,
        counter_sets: Mapping[str, CounterSet],
        path: str,
    ) -> DeviceCounterConsumption:
        counters = self._counters(declared_consumption.counters, f"{path}.counters")
        source = counter_sets.get(declared_consumption.counter_set)
        if source is None:
            names = ", ".join(sorted(counter_sets)) or "none"
            message = f"the pool has no counter set {declared_consumption.counter_set}"
            self._fault(f"{path}.counterSet", message, f"its counter sets: {names}")
        for name, counter in counters.items() if source is not None else ():
            total = (source.counters or {}).get(name) if source is not None else None
            here = f"{path}.counters[{name}]"
            if total is None:
                self._fault(
                    here, f"counter set {declared_consumption.counter_set} has no such counter", ""
                )
            elif counter.value > total.value:
                message = f"{counter.value} is more than all of it, {total.value}"
                self._fault(here, message, "no claim could ever get the device")
        groups = f"{path}.compatibilityGroups"
        self._at_most(
            len(declared_consumption.compatibility_groups), limits.GROUPS, groups, "groups"
        )
        for index, group in enumerate(declared_consumption.compatibility_groups):
            self._label(group, f"{groups}[{index}]")
        return DeviceCounterConsumption(
            counter_set=declared_consumption.counter_set,
            counters=counters,
            compatibility_groups=declared_consumption.compatibility_groups or None,
        )

    def _taints(
        self, declared_taints: Iterable[DeclaredTaint], path: str
    ) -> tuple[DeviceTaint, ...] | None:
        taints: list[DeviceTaint] = []
        for index, taint in enumerate(declared_taints):
            here = f"{path}[{index}]"
            if not is_label_key(taint.key):
                self._fault(f"{here}.key", f"{taint.key!r} is no key of a taint", "as of a label")
            if taint.key.startswith(f"{GROUP}/"):
                self._fault(f"{here}.key", f"{GROUP} is the driver's own domain", "use another")
            if not is_label_value(taint.value):
                self._fault(f"{here}.value", f"{taint.value!r} is no value of a taint", "")
            taints.append(DeviceTaint(key=taint.key, value=taint.value, effect=taint.effect))
        self._at_most(len(taints), limits.TAINTS - limits.OWN_TAINTS, path, "taints")
        return tuple(taints) or None

    # --- what containers get --------------------------------------------------------------------

    def _injection(self, declared_device: DeclaredDevice, path: str) -> Injection:
        for name, value in declared_device.environment.items():
            here = f"{path}.environment[{name}]"
            if not is_variable(name):
                self._fault(here, f"{name!r} is no name of a variable", "")
            if name.startswith(OWN_VARIABLES):
                self._fault(here, f"{OWN_VARIABLES}* are the driver's own variables", "rename it")
            if "\0" in value:
                self._fault(here, "holds a null character", "")
        for index, name in enumerate(declared_device.cdi_devices):
            if not is_cdi_device(name):
                fix = "write vendor/class=name, such as nvidia.com/gpu=0"
                self._fault(f"{path}.cdiDevices[{index}]", f"{name!r} is no device of CDI", fix)
        nodes = [
            self._device_node(device_node, f"{path}.deviceNodes[{index}]")
            for index, device_node in enumerate(declared_device.device_nodes)
        ]
        mounts = [
            self._mount(mount, f"{path}.mounts[{index}]")
            for index, mount in enumerate(declared_device.mounts)
        ]
        return Injection(
            environment=declared_device.environment,
            device_nodes=tuple(nodes),
            mounts=tuple(mounts),
            cdi_devices=declared_device.cdi_devices,
        )

    def _device_node(self, declared_node: str | DeclaredNode, path: str) -> DeviceNode:
        node = DeclaredNode(path=declared_node) if isinstance(declared_node, str) else declared_node
        self._path(node.path, path)
        if node.host_path is not None:
            self._path(node.host_path, f"{path}.hostPath")
        if not node.permissions or not _PERMISSIONS.issuperset(node.permissions):
            self._fault(f"{path}.permissions", f"{node.permissions!r}", "some of r, w and m")
        return DeviceNode(
            path=node.path,
            host_path=node.host_path,
            permissions=node.permissions,
            type=node.type,
            major=node.major,
            minor=node.minor,
        )

    def _mount(self, declared_mount: DeclaredMount, path: str) -> Mount:
        self._path(declared_mount.host_path, f"{path}.hostPath")
        if declared_mount.container_path is not None:
            self._path(declared_mount.container_path, f"{path}.containerPath")
        return Mount(
            host_path=declared_mount.host_path,
            container_path=declared_mount.container_path or declared_mount.host_path,
            options=declared_mount.options,
        )

    # --- values ---------------------------------------------------------------------------------

    def _amount(self, declared_amount: Amount, path: str) -> Quantity:
        text = declared_amount if isinstance(declared_amount, str) else repr(declared_amount)
        try:
            amount = Quantity(text)
        except QuantityError as error:
            self._fault(path, str(error), _as_quantity(text))
            return ZERO
        if amount.nanos < 0:
            self._fault(path, f"{text} is negative", "")
        return amount

    def _label(self, name: str, path: str) -> None:
        if not is_dns_label(name):
            fix = "lower-case letters, digits and -, at most 63 of them"
            self._fault(path, f"{name!r} is no DNS label", fix)

    def _qualified_name(self, name: str, path: str) -> None:
        if not is_qualified_name(name):
            fix = "letters, digits and _, at most 32 of them, after an optional domain/"
            self._fault(path, f"{name!r} names no attribute or capacity", fix)

    def _short(self, text: str, path: str) -> None:
        size = len(text.encode())
        if size > limits.STRING_BYTES:
            self._fault(path, f"has {size} bytes, above {limits.STRING_BYTES}", "shorten it")

    def _path(self, text: str, path: str) -> None:
        if not is_plain_path(text):
            fix = "write it from / on, without .. and doubled slashes"
            self._fault(path, f"{text!r} is no absolute path", fix)

    def _at_most(self, count: int, most: int, path: str, what: str) -> None:
        if count > most:
            self._fault(path, f"has {count} {what}, above {most}", "")

    def _fault(self, path: str, message: str, fix: str) -> None:
        self.faults.append(FieldError(path=path, message=message, fix=fix))


def _as_quantity(text: str) -> str:
    """Return advice on an amount with a unit that Kubernetes does not know."""
    compact = text.replace(" ", "").removesuffix("B").removesuffix("b")
    try:
        Quantity(compact)
    except QuantityError:
        return "write an amount as 80Gi, 512Mi, 100 or 0.5"
    return f"write {compact}"
