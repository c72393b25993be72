"""Pods as costly as an author with the right to create pods can make them."""

import copy
import json
from typing import Final

from e2e.access import Access, Object, stream
from e2e.objects import pod
from kube.names import REQUEST_ANNOTATION

GPU: Final = "nvidia.com/gpu"


def forged_pod(cluster: Access, namespace: str, honest: Object, containers: int) -> Object:
    """Return a pod with an annotation that derives as much as its author can make it.

    Args:
        namespace: One in which pods are translated.
        honest: A pod that is translated; its record is what is forged.
    """
    command = ("create", "-n", namespace, "--dry-run=server", "-o", "json", "-f", "-")
    document: Object = json.loads(cluster.kubectl(*command, input=stream(honest)).stdout)
    record = json.loads(document["metadata"]["annotations"][REQUEST_ANNOTATION])
    sizes = [{"size": str((10 + number) * 2**30)} for number in range(8)]
    for profile in record["profiles"]:
        profile["facts"] = {"gpu": {"sizes": sizes}}
    limits = {GPU: "1", "nvidia.com/gpumem-percentage": "30"}
    names = [f"c{number}" for number in range(containers)]
    record["containers"] = [{"name": name, "limits": limits} for name in names]
    devices = device_names(70)
    record["annotations"] = {"nvidia.com/use-gpuuuid": devices, "nvidia.com/nouse-gpuuuid": devices}
    bad = _of_containers("forged", [None] * containers)
    bad["spec"]["resourceClaims"] = [
        {"name": "gpu", "resourceClaimTemplateName": "hami-gpu-1-0123456789abcdef"}
    ]
    bad["metadata"]["annotations"] = {REQUEST_ANNOTATION: json.dumps(record)}
    return bad


def costly_pods() -> list[Object]:
    """Return pods at the bounds of the read values, and beyond; each is refused or costs its author."""
    claims = pod("claims", limits={GPU: 1})
    claims["spec"]["resourceClaims"] = [
        {"name": f"c{number}", "resourceClaimTemplateName": "a"} for number in range(1024)
    ]
    filters = pod("filters", limits={GPU: 1, "nvidia.com/gpumem-percentage": 30})
    devices = device_names(2000)
    filters["metadata"]["annotations"] = {
        "nvidia.com/use-gpuuuid": devices,
        "nvidia.com/nouse-gpuuuid": devices,
    }
    text = pod("text", limits={GPU: 1})
    text["metadata"]["annotations"] = {REQUEST_ANNOTATION: "[" * 200_000}
    both = {GPU: 1, "koordinator.sh/gpu": 50, "koordinator.sh/gpu-memory-ratio": 50}
    return [
        _of_containers("sizes", [{GPU: 1, "nvidia.com/gpumem": 100 + n} for n in range(64)]),
        _of_containers("many-sizes", [{GPU: 1, "nvidia.com/gpumem": 100 + n} for n in range(256)]),
        _of_containers("vocabularies", [both] * 100),
        _of_containers("amounts", [{f"nvidia.com/k{n}": 1 for n in range(40)} | {GPU: 1}] * 100),
        _of_containers("partitions", [{f"nvidia.com/mig-{n}g.{n}gb": 1} for n in range(1, 250)]),
        pod("number", limits={GPU: "1e999999"}),
        claims,
        filters,
        text,
    ]


def device_names(count: int) -> str:
    """Return names of devices, as lists of annotations have them."""
    return ",".join(f"GPU-{number:05}-{'a' * 20}" for number in range(count))


def _of_containers(name: str, limits: list[dict[str, int] | None]) -> Object:
    bad: Object = copy.deepcopy(pod(name))
    (container,) = bad["spec"]["containers"]
    bad["spec"]["containers"] = [
        {**container, "name": f"c{number}", **({"resources": {"limits": keys}} if keys else {})}
        for number, keys in enumerate(limits)
    ]
    return bad
