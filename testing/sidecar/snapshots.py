"""Pods, claims and small clusters, as the decisions of the sidecar see them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from allocator.cluster.cluster import Cluster
from allocator.features.consumer_limits import consumer_limits
from allocator.model.feature_gates import Features
from allocator.pods.claims import allocation_of, claim_name
from allocator.search.attempt import AllocatorOptions
from allocator.strategies.by_node_pool import pool_strategies
from allocator.strategies.capacity_weights import driver_weights
from kube.api.core import Node, Pod
from kube.api.device_quota import DeviceQuota
from kube.api.extended_resources import extended_resources
from kube.api.meta import convert
from kube.api.ownership import OwnedDriver
from kube.api.resource import (
    DeviceClass,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
    ResourceSlice,
)
from quotas.device_quotas.book import QuotaBook
from quotas.device_quotas.tenants import Labels
from sidecar.plan.occupancy import counted_claim
from sidecar.plan.snapshot import Snapshot
from sidecar.state.consumers import ConsumerIndex
from testing.allocation.builders import (
    DRIVER,
    claim,
    device,
    device_class,
    devices,
    node,
    request,
    slice_of,
)

NAMESPACES: Final[Mapping[str, Labels]] = {"default": {}}


def pod(
    *claims: str,
    name: str = "a",
    priority: int = 0,
    nominated: str = "",
    is_deleted: bool = False,
    namespace: str = "default",
    **spec: Any,
) -> Pod:
    """A pod with these claims: `pod("gpu", nodeName="node-1")`."""
    return convert(
        {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": f"uid-{name}",
                "deletionTimestamp": "2026-11-21T00:00:00Z" if is_deleted else None,
            },
            "status": {"nominatedNodeName": nominated},
            "spec": {
                "resourceClaims": [
                    {"name": claim_name_, "resourceClaimName": claim_name_}
                    for claim_name_ in claims
                ],
                "priority": priority,
                **spec,
            },
        },
        Pod,
    )


def affinity(terms: int) -> dict[str, Any]:
    """A required node affinity of so many terms that no node meets."""
    keys = (f"key-{number}" for number in range(terms))
    selectors = [{"matchExpressions": [{"key": key, "operator": "Exists"}]} for key in keys]
    required = {"nodeSelectorTerms": selectors}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def snapshot(
    *claims: ResourceClaim,
    nodes: Sequence[Node] = (node("node-1"), node("node-2")),
    slices: Sequence[ResourceSlice] | None = None,
    classes: Sequence[DeviceClass] = (device_class(),),
    pods: Sequence[Pod] = (),
    drivers: Sequence[str] = (DRIVER,),
    quotas: Sequence[DeviceQuota] = (),
    namespaces: Mapping[str, Labels] = NAMESPACES,
    settings: Sequence[OwnedDriver] = (),
) -> Snapshot:
    """A cluster, by default of two nodes with gpu-0 and gpu-1 each.

    A claim that is used by none of the pods is being released. `settings` are those of owned drivers.
    """
    by_name: Mapping[str, DeviceClass] = {class_.metadata.name: class_ for class_ in classes}
    if slices is None:
        names = [node_.metadata.name for node_ in nodes]
        slices = [slice_of(*devices("gpu-0", "gpu-1"), pool=name, node=name) for name in names]
    index = ConsumerIndex({claim_name(claim_): claim_ for claim_ in claims})
    for claim_ in claims:
        index.replace_claim(claim_name(claim_), None, claim_)
    for pod_ in pods:
        index.replace_pod(None, pod_)
    return Snapshot(
        cluster=Cluster(
            slices=slices,
            nodes=nodes,
            claims=claims,
            classes=by_name,
            options=AllocatorOptions(consumer_limits=consumer_limits(settings)),
        ),
        claims={claim_name(claim_): claim_ for claim_ in claims},
        classes=by_name,
        extended_resources=extended_resources(classes),
        pods=index.pods,
        nominated=index.nominated,
        terminating=index.terminating,
        claims_of=index.claims_of,
        releasing=frozenset(index.releasing),
        lowest_priority=index.lowest_priority,
        drivers=frozenset(drivers),
        quotas=quota_book(quotas, namespaces, by_name, slices, claims) if quotas else None,
        pool_strategies=pool_strategies(settings),
        weights=driver_weights(settings),
    )


def quota_book(
    quotas: Iterable[DeviceQuota],
    namespaces: Mapping[str, Labels],
    classes: Mapping[str, DeviceClass],
    slices: Iterable[ResourceSlice],
    claims: Iterable[ResourceClaim],
) -> QuotaBook:
    """Quotas, with the claims that are allocated charged to them."""
    book = QuotaBook(Features())
    for name, device_class_ in classes.items():
        book.replace_class(name, device_class_)
    book.replace_slices({slice_.metadata.name: slice_ for slice_ in slices})
    for name, labels in namespaces.items():
        book.replace_namespace(name, labels)
    for quota in quotas:
        book.replace_quota(quota.metadata.name, quota)
    for claim_ in claims:
        if allocation_of(claim_) is not None:
            book.put_claim(claim_name(claim_), counted_claim(claim_))
    return book


def used_by(claim_: ResourceClaim, *uids: str) -> ResourceClaim:
    """A claim that is reserved for these pods."""
    status = claim_.status or ResourceClaimStatus()
    users = tuple(
        ResourceClaimConsumerReference(resource="pods", name=uid, uid=uid) for uid in uids
    )
    return replace(claim_, status=replace(status, reserved_for=users))


def hard_claim(name: str = "gpu") -> ResourceClaim:
    """A claim for 18 shares that fill the six devices of a node of `hard_slices`: the search is cut off."""
    sizes = (37, 43, 34, 34, 32, 36, 38, 40, 28, 31, 27, 39, 29, 29, 31, 40, 36, 40)
    return claim(
        *(
            request(f"r{number}", capacity={"memory": 1000 * size})
            for number, size in enumerate(sizes)
        ),
        name=name,
    )


def hard_slices(nodes: Iterable[Node]) -> list[ResourceSlice]:
    """Devices for `hard_claim`, on nodes that are all different."""
    return [
        slice_of(
            *(
                device(
                    name, shared=True, capacity={"memory": str(100_000 + 1_700 * number + index)}
                )
                for number, name in enumerate("abcdef")
            ),
            pool=node_.metadata.name,
            node=node_.metadata.name,
        )
        for index, node_ in enumerate(nodes)
    ]
