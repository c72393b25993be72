"""Typed objects for tables of the allocator, so that a row stays on one line.

Names default to the first of their kind: driver `gpu.example.com`, node and pool `node-1`, class
`gpu`, claim `default/claim-0`, request `req-0`. Amounts are texts; attributes are plain values, and
a `Version` is a version.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from allocator.model.devices import DeviceId, NodeDevices, Pool, PoolId, PoolState, PublishedDevice
from allocator.model.requests import Expression, Request
from kube.api.core import Node
from kube.api.meta import ObjectMeta, convert
from kube.api.node_selector import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from kube.api.ownership import NodePool
from kube.api.policy import (
    CompatibilityRule,
    CompatibleOnlyWith,
    DeviceCompatibilityPolicy,
    DeviceCompatibilityPolicySpec,
)
from kube.api.resource import (
    AllocationResult,
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    CapacityRequirements,
    CelSelector,
    Counter,
    CounterSet,
    Device,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceAttribute,
    DeviceCapacity,
    DeviceClaim,
    DeviceClaimConfiguration,
    DeviceClass,
    DeviceClassConfiguration,
    DeviceClassSpec,
    DeviceConstraint,
    DeviceCounterConsumption,
    DeviceRequest,
    DeviceRequestAllocationResult,
    DeviceSelector,
    DeviceSubRequest,
    DeviceTaint,
    DeviceToleration,
    ExactDeviceRequest,
    OpaqueDeviceConfiguration,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimStatus,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from kube.quantity import Quantity

DRIVER: Final = "gpu.example.com"
NODE: Final = "node-1"
NAMESPACE: Final = "default"


class Version(str):
    """An attribute of type version: `device(attributes={"firmware": Version("1.2.3")})`."""

    __slots__ = ()


Plain = bool | int | str | Version
Attribute = Plain | Sequence[Plain]


def quantities(amounts: Mapping[str, str | int]) -> dict[str, Quantity]:
    """Keys to amounts."""
    return {key: Quantity(amount) for key, amount in amounts.items()}


# --- inventory ------------------------------------------------------------------------------------


def attribute(value: Attribute) -> DeviceAttribute:
    """An attribute of the type of its value; a tuple or list is a list attribute."""
    many = not isinstance(value, str | int)
    values = tuple(value) if not isinstance(value, str | int) else (value,)
    kind = next(
        name
        for name, type_ in (("version", Version), ("string", str), ("bool", bool), ("int", int))
        if isinstance(values[0], type_)
    )
    return convert({f"{kind}s": values} if many else {kind: values[0]}, DeviceAttribute)


def amount(value: str, default: str | None = None, **policy: Any) -> DeviceCapacity:
    """A capacity with a policy: `amount("80Gi", "1Gi", min="1Gi", step="1Gi")`, `values=(...)`."""
    values = policy.pop("values", None)
    return DeviceCapacity(
        value=Quantity(value),
        request_policy=CapacityRequestPolicy(
            default=Quantity(default) if default is not None else None,
            valid_values=tuple(map(Quantity, values)) if values is not None else None,
            valid_range=CapacityRequestPolicyRange(**quantities(policy)) if policy else None,
        ),
    )


def consumes(
    counter_set: str = "set-0", *, groups: Sequence[str] | None = None, **counters: str | int
) -> DeviceCounterConsumption:
    """Consumption of a counter set: `consumes("gpu-0", memory="10Gi", groups="ab")`."""
    return DeviceCounterConsumption(
        counter_set=counter_set,
        counters=_counters(counters),
        compatibility_groups=tuple(groups) if groups is not None else None,
    )


def counter_set(name: str = "set-0", **counters: str | int) -> CounterSet:
    """A counter set of a pool: `counter_set("gpu-0", memory="80Gi")`."""
    return CounterSet(name=name, counters=_counters(counters))


def _counters(amounts: Mapping[str, str | int]) -> dict[str, Counter]:
    return {name: Counter(value=amount) for name, amount in quantities(amounts).items()}


def device(
    name: str = "gpu-0",
    /,
    *takes: DeviceCounterConsumption,
    attributes: Mapping[str, Attribute] | None = None,
    capacity: Mapping[str, str | DeviceCapacity] | None = None,
    shared: bool | None = None,
    selector: NodeSelector | None = None,
    node: str | None = None,
    **fields: Any,
) -> Device:
    """A device; `shared` is allowMultipleAllocations, `fields` are those of the API type."""
    return Device(
        name=name,
        attributes={key: attribute(value) for key, value in attributes.items()}
        if attributes is not None
        else None,
        capacity={
            key: DeviceCapacity(value=Quantity(value)) if isinstance(value, str) else value
            for key, value in capacity.items()
        }
        if capacity is not None
        else None,
        consumes_counters=takes or None,
        allow_multiple_allocations=shared,
        node_selector=selector,
        node_name=node,
        **fields,
    )


def devices(*names: str, **same: Any) -> tuple[Device, ...]:
    """Devices that differ in name only: `devices("a", "b", shared=True)`."""
    return tuple(device(name, **same) for name in names)


def taint(key: str = "broken", value: str = "", effect: str = "NoSchedule") -> DeviceTaint:
    """A taint of a device."""
    return DeviceTaint(key=key, value=value, effect=effect)


def tolerates(
    key: str = "", value: str = "", effect: str = "", operator: str = "Equal"
) -> DeviceToleration:
    """A toleration; without a key it is `Exists`, of everything."""
    return DeviceToleration(
        key=key, value=value, effect=effect, operator=operator if key else "Exists"
    )


def slice_of(
    *devices: Device,
    name: str = "",
    driver: str = DRIVER,
    pool: str = NODE,
    counters: Sequence[CounterSet] = (),
    generation: int = 1,
    count: int = 1,
    node: str | None = None,
    selector: NodeSelector | None = None,
    all_nodes: bool | None = None,
    per_device: bool | None = None,
    **fields: Any,
) -> ResourceSlice:
    """A slice named `<pool>-slice`, by default on the node of its pool's name."""
    if node is None and selector is None and all_nodes is None and per_device is None:
        node = pool
    return ResourceSlice(
        metadata=ObjectMeta(name=name or f"{pool}-slice"),
        spec=ResourceSliceSpec(
            driver=driver,
            pool=ResourcePool(name=pool, generation=generation, resource_slice_count=count),
            devices=devices or None,
            shared_counters=tuple(counters) or None,
            node_name=node or None,
            node_selector=selector,
            all_nodes=all_nodes,
            per_device_node_selection=per_device,
            **fields,
        ),
    )


def requirement(key: str, *values: str, operator: str = "In") -> NodeSelectorRequirement:
    """A requirement on a label of a node."""
    return NodeSelectorRequirement(key=key, operator=operator, values=values or None)


def labelled_node_selector(**labels: str) -> NodeSelector:
    """A selector with one term that wants each of the labels."""
    requirements = tuple(requirement(key, value) for key, value in labels.items())
    return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=requirements),))


def node(name: str = NODE, *, features: Sequence[str] = (), **labels: str) -> Node:
    """A node with labels; `features` are those that it declares."""
    return convert(
        {
            "metadata": {"name": name, "labels": labels},
            "status": {"declaredFeatures": list(features)},
        },
        Node,
    )


def node_pool(name: str, **settings: Any) -> NodePool:
    """A pool of the nodes with the label `pool: name`; `settings` as the API has them.

    With `nodeSelector` it is of other nodes.
    """
    selector = {"matchLabels": {"pool": name}}
    return convert({"name": name, "nodeSelector": selector, **settings}, NodePool)


# --- classes and claims ---------------------------------------------------------------------------


def selectors(*expressions: str) -> tuple[DeviceSelector, ...] | None:
    """CEL selectors."""
    return tuple(DeviceSelector(cel=CelSelector(expression=text)) for text in expressions) or None


def opaque(driver: str = DRIVER, **parameters: Any) -> OpaqueDeviceConfiguration:
    """Opaque parameters for a driver."""
    return OpaqueDeviceConfiguration(driver=driver, parameters=parameters)


def device_class(
    name: str = "gpu", *expressions: str, config: Sequence[OpaqueDeviceConfiguration] = ()
) -> DeviceClass:
    """A class of devices that its expressions select."""
    configs = tuple(DeviceClassConfiguration(opaque=entry) for entry in config)
    return DeviceClass(
        metadata=ObjectMeta(name=name),
        spec=DeviceClassSpec(selectors=selectors(*expressions), config=configs or None),
    )


def classes(*device_classes: DeviceClass) -> dict[str, DeviceClass]:
    """Classes by name; without arguments the class `gpu` that selects everything."""
    return {class_.metadata.name: class_ for class_ in device_classes or (device_class(),)}


def _asks(
    expressions: Sequence[str],
    count: int | None,
    capacity: Mapping[str, str | int] | None,
    fields: Mapping[str, Any],
) -> dict[str, Any]:
    """The fields that a request and an alternative share; mode All if `count` is None."""
    return {
        "device_class_name": "gpu",
        "selectors": selectors(*expressions),
        "allocation_mode": "All" if count is None else "ExactCount",
        "count": count,
        "capacity": CapacityRequirements(requests=quantities(capacity))
        if capacity is not None
        else None,
        **fields,
    }


def request(
    name: str = "req-0",
    *expressions: str,
    count: int | None = 1,
    capacity: Mapping[str, str | int] | None = None,
    **fields: Any,
) -> DeviceRequest:
    """A request for `count` devices, or for all if it is None."""
    asks = _asks(expressions, count, capacity, fields)
    return DeviceRequest(name=name, exactly=ExactDeviceRequest(**asks))


def alternative(
    name: str = "sub-0",
    *expressions: str,
    count: int | None = 1,
    capacity: Mapping[str, str | int] | None = None,
    **fields: Any,
) -> DeviceSubRequest:
    """One alternative of a `firstAvailable`."""
    return DeviceSubRequest(name=name, **_asks(expressions, count, capacity, fields))


def first_of(name: str = "req-0", *alternatives: DeviceSubRequest) -> DeviceRequest:
    """A request with alternatives in order of preference."""
    return DeviceRequest(name=name, first_available=alternatives)


def match(attribute_name: str, *requests: str) -> DeviceConstraint:
    """All devices of the requests have the attribute in common."""
    return DeviceConstraint(match_attribute=attribute_name, requests=requests or None)


def distinct(attribute_name: str, *requests: str) -> DeviceConstraint:
    """No two devices of the requests have the attribute in common."""
    return DeviceConstraint(distinct_attribute=attribute_name, requests=requests or None)


def configured_configuration(
    *requests: str, driver: str = DRIVER, **parameters: Any
) -> DeviceClaimConfiguration:
    """A claim's configuration for the named requests, or for all."""
    return DeviceClaimConfiguration(requests=requests or None, opaque=opaque(driver, **parameters))


def claim(
    *requests: DeviceRequest,
    name: str = "claim-0",
    namespace: str = NAMESPACE,
    constraints: Sequence[DeviceConstraint] = (),
    config: Sequence[DeviceClaimConfiguration] = (),
) -> ResourceClaim:
    """A claim that is not allocated."""
    return ResourceClaim(
        metadata=ObjectMeta(name=name, namespace=namespace, uid=f"{namespace}/{name}"),
        spec=ResourceClaimSpec(
            devices=DeviceClaim(
                requests=requests or None,
                constraints=tuple(constraints) or None,
                config=tuple(config) or None,
            )
        ),
    )


def result(
    name: str = "gpu-0",
    *,
    request: str = "req-0",
    driver: str = DRIVER,
    pool: str = NODE,
    share: str | None = None,
    consumed: Mapping[str, str | int] | None = None,
    **fields: Any,
) -> DeviceRequestAllocationResult:
    """A device that a claim was given; `share` is the share id."""
    return DeviceRequestAllocationResult(
        request=request,
        driver=driver,
        pool=pool,
        device=name,
        share_id=share,
        consumed_capacity=quantities(consumed) if consumed is not None else None,
        **fields,
    )


def allocated_claim(
    *results: DeviceRequestAllocationResult,
    name: str = "claim-0",
    namespace: str = NAMESPACE,
    config: Sequence[DeviceAllocationConfiguration] = (),
) -> ResourceClaim:
    """A claim that holds devices."""
    return ResourceClaim(
        metadata=ObjectMeta(name=name, namespace=namespace, uid=f"{namespace}/{name}"),
        status=ResourceClaimStatus(
            allocation=AllocationResult(
                devices=DeviceAllocationResult(results=results, config=tuple(config) or None)
            )
        ),
    )


def applied_configuration(
    *requests: str, source: str = "FromClaim", driver: str = DRIVER, **parameters: Any
) -> DeviceAllocationConfiguration:
    """Configuration as an allocation carries it, for the named requests or for all."""
    return DeviceAllocationConfiguration(
        source=source, requests=requests or None, opaque=opaque(driver, **parameters)
    )


# --- the allocator's own words --------------------------------------------------------------------


def pool_of(
    *devices: Device,
    counters: Sequence[CounterSet] = (),
    elsewhere: Sequence[Device] = (),
    driver: str = DRIVER,
    pool: str = NODE,
    state: PoolState = PoolState.COMPLETE,
    **fields: Any,
) -> Pool:
    """A pool as a node sees it; `fields` are those of the slice of its devices."""
    here = slice_of(*devices, driver=driver, pool=pool, **fields)
    there = slice_of(*elsewhere, driver=driver, pool=pool, name="elsewhere", node="elsewhere")
    return Pool(
        id=PoolId(driver, pool),
        state=state,
        devices=tuple(_published_devices(here)),
        elsewhere=tuple(_published_devices(there)),
        counter_sets={counter.name: counter for counter in counters},
    )


def _published_devices(slice_: ResourceSlice) -> Iterable[PublishedDevice]:
    for device_ in slice_.spec.devices or ():
        yield PublishedDevice(
            id=DeviceId(slice_.spec.driver, slice_.spec.pool.name, device_.name),
            device=device_,
            slice=slice_,
        )


def node_with(*pools: Pool, name: str = NODE, features: Sequence[str] = ()) -> NodeDevices:
    """The devices of a node, from pools in this order."""
    indexed_devices = [
        (index, device_) for index, pool in enumerate(pools) for device_ in pool.devices
    ]
    return NodeDevices(
        node=name,
        declared_features=frozenset(features),
        pools=pools,
        devices=tuple(published_device for _, published_device in indexed_devices),
        pool_of=tuple(index for index, _ in indexed_devices),
        positions={
            published_device.id: position
            for position, (_, published_device) in enumerate(indexed_devices)
        },
    )


def resolved_request(
    name: str = "req-0",
    *expressions: str,
    count: int | None = 1,
    capacity: Mapping[str, str | int] | None = None,
    **fields: Any,
) -> Request:
    """A resolved request of the first claim; mode All if `count` is None."""
    defaults: dict[str, Any] = {
        "claim": 0,
        "index": 0,
        "name": name,
        "device_class": device_class(),
        "expressions": tuple(
            Expression(text=text, origin=f"request {name}") for text in expressions
        ),
        "all_devices": count is None,
        "count": count or 0,
        "capacity": quantities(capacity) if capacity is not None else None,
    }
    return Request(**(defaults | fields))


# --- compatibility policies -----------------------------------------------------------------------


def rule(
    name: str, *where: str, only: str | None = None, groups: Sequence[str] | None = None
) -> CompatibilityRule:
    """A rule for the devices that its expressions select; `only` is its compatibleOnlyWith."""
    return CompatibilityRule(
        name=name,
        selectors=selectors(*where),
        compatibility_groups=tuple(groups) if groups is not None else None,
        compatible_only_with=None
        if only is None
        else CompatibleOnlyWith(cel=CelSelector(expression=only)),
    )


def policy(
    *rules: CompatibilityRule, name: str = "policy", driver: str = DRIVER, **spec: Any
) -> DeviceCompatibilityPolicy:
    """A policy; `spec` are the further fields of its spec."""
    return DeviceCompatibilityPolicy(
        metadata=ObjectMeta(name=name),
        spec=DeviceCompatibilityPolicySpec(driver=driver, rules=rules or None, **spec),
    )


def attribute_of(name: str, driver: str = DRIVER) -> str:
    """An attribute in CEL: `device.attributes["gpu.example.com"].mode`."""
    return f'device.attributes["{driver}"].{name}'
