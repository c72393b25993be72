"""A cluster of one node with two shared GPUs of HAMi's driver, of 80Gi and of 40Gi."""

from typing import Any, Final

from allocator.cluster.cluster import Cluster
from allocator.search.attempt import AllocatorOptions
from kube.api.core import Node
from kube.api.meta import ObjectMeta, convert
from kube.api.resource import DeviceClass
from rules.context.inventory import Inventory
from rules.feasibility.idle_cluster import IdleCluster
from testing.builders import driver_slice, hami_gpu, translation_snapshot
from testing.documents import Document

HAMI: Final = "hami-core-gpu.project-hami.io"


def _gpu(size: str, uuid: str) -> Document:
    """Return a GPU with a UUID of its own, since devices of one claim must differ."""
    device = hami_gpu(size)
    return {**device, "attributes": {**device["attributes"], "uuid": {"string": uuid}}}


_SLICE: Final = driver_slice(HAMI, _gpu("80Gi", "GPU-0"), _gpu("40Gi", "GPU-1"))
_CLASS: Final = convert(
    {
        "metadata": {"name": HAMI},
        "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{HAMI}"'}}]},
    },
    DeviceClass,
)
SNAPSHOT: Final = translation_snapshot(_SLICE)


def context_fields() -> dict[str, Any]:
    """Return the fields of the context of the cluster for rules, with nothing allocated."""
    objects: dict[str, Any] = {
        "slices": [_SLICE],
        "nodes": [Node(metadata=ObjectMeta(name="node-1"))],
        "classes": {HAMI: _CLASS},
    }
    return {
        "classes": {HAMI: _CLASS},
        "inventory": Inventory([_SLICE]),
        "idle_cluster": IdleCluster(rules=AllocatorOptions(), **objects),
        "current_cluster": Cluster(claims=[], options=AllocatorOptions(), **objects),
    }
