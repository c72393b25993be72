"""Pods in the cluster of `examples/quota`, with keys or with claims."""

import json
import re
from typing import Final

from kube.manifests.dump import dump_yaml
from kube.names import SCHEDULER_NAME
from testing.command import EXAMPLES, drawbridge
from testing.documents import Document, api_object

QUOTA: Final = EXAMPLES / "quota"


CLUSTER: Final = ("--snapshot", QUOTA / "cluster.yaml")


_FINDING: Final = re.compile(r"^\w+: (\S+): .*\[(\w*Quota\w*)\]$", re.MULTILINE)


HAMI: Final = "hami-core-gpu.project-hami.io"


def simulate(*documents: Document) -> tuple[dict[str, bool], list[tuple[str, str]]]:
    """Return the pods that are placed, and object and code of the findings about quotas."""
    call = ("simulate", "-f", "-", *CLUSTER, "-o", "json")
    result = drawbridge(*call, stdin=dump_yaml(documents))
    assert result.exit_code in (0, 1), result.stderr
    answer = json.loads(result.stdout)
    placed = {pod["name"]: bool(pod.get("node")) for pod in answer["pods"]}
    return placed, _FINDING.findall(result.stderr)


def share(name: str, mebibytes: int, namespace: str = "vision") -> Document:
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": mebibytes}
    container = {"name": "main", "image": "a", "resources": {"limits": limits}}
    return api_object("Pod", name, namespace, spec={"containers": [container]})


OWNERSHIP: Final[Document] = api_object(
    "AllocatorOwnership", "default", spec={"drivers": [{"name": HAMI}]}
)


def of_bridge(claim: Document, pod: Document) -> tuple[Document, ...]:
    """A claim and a pod that the bridge decides about."""
    pod["spec"]["schedulerName"] = SCHEDULER_NAME
    return claim, pod, OWNERSHIP


def pending(memory: str, namespace: str = "vision") -> tuple[Document, ...]:
    exactly = {"deviceClassName": HAMI, "capacity": {"requests": {"memory": memory, "cores": "1"}}}
    return (
        api_object(
            "ResourceClaim",
            "next",
            namespace,
            spec={"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
        ),
        api_object(
            "Pod",
            "next",
            namespace,
            spec={
                "containers": [{"name": "main", "image": "a"}],
                "resourceClaims": [{"name": "gpu", "resourceClaimName": "next"}],
            },
        ),
    )
