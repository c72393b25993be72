"""Configurations that contradict: the warnings for a claim, a template and a pod."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import pytest

from allocator.cluster.cluster import Cluster
from allocator.pods.claims import Name
from allocator.search.attempt import AllocatorOptions
from findings.finding import Code
from kube.api.core import Node
from kube.api.meta import ObjectMeta, convert
from kube.api.resource import DeviceClaim, ResourceClaim, ResourceSlice
from rules.context.context import Context
from testing.documents import (
    NVIDIA,
    Document,
    api_object,
    attributes,
    claim,
    config,
    exactly,
    gpu_config,
    resource_slice,
)
from testing.rule_cases import NAMESPACE, findings_of
from testing.rule_contexts import CLASSES

SHARED: Final[Document] = {
    "name": "gpu-0",
    "allowMultipleAllocations": True,
    **attributes(type="gpu"),
}
WHOLE: Final[Document] = {"name": "gpu-0", **attributes(type="gpu")}


def time_slices(interval: str) -> Document:
    return gpu_config(strategy="TimeSlicing", timeSlicingConfig={"interval": interval})


def sharing(interval: str) -> Document:
    """A claim for a GPU with this interval."""
    return claim(exactly(), config=[config(time_slices(interval))])


def allocated_document(name: str, interval: str, namespace: str = NAMESPACE) -> Document:
    """A claim that has a share of the GPU."""
    result = {
        "request": "gpu",
        "driver": NVIDIA,
        "pool": "node-a",
        "device": "gpu-0",
        "shareID": f"share-of-{name}",
    }
    entries = [{"source": "FromClaim", **config(time_slices(interval))}]
    devices = {"results": [result], "config": entries}
    return {
        **sharing(interval),
        "metadata": {"name": name, "namespace": namespace},
        "status": {"allocation": {"devices": devices}},
    }


def cluster(
    *in_use: Document,
    device: Document = SHARED,
    claims: Mapping[Name, Document] | None = None,
    **fields: Any,
) -> Context:
    """A node with one GPU, the claims that use it, and other claims."""
    published_slices = [convert(resource_slice(device, driver=NVIDIA), ResourceSlice)]
    classes = {device_class.metadata.name: device_class for device_class in CLASSES}
    typed_claims = [convert(document, ResourceClaim) for document in in_use]
    current = Cluster(
        slices=published_slices,
        nodes=[Node(metadata=ObjectMeta(name="node-a"))],
        claims=typed_claims,
        classes=classes,
        options=AllocatorOptions(),
    )
    devices: dict[Name, DeviceClaim] = {
        name: convert(document, ResourceClaim).spec.devices
        for name, document in (claims or {}).items()
    }
    return Context(
        **{
            "classes": classes,
            "current_cluster": current,
            "claims": devices,
            "allocated_claims": {
                (first_claim.metadata.namespace, first_claim.metadata.name): frozenset({NVIDIA})
                for first_claim in typed_claims
            },
            "uniform_config_drivers": frozenset({NVIDIA}),
            **fields,
        }
    )


def messages(document: Document, context: Context) -> list[str]:
    return [
        str(finding.message)
        for finding in findings_of(document, context)
        if finding.code is Code.CONFLICTING_SHARING_CONFIG
    ]


_END: Final = f"; driver {NVIDIA} rejects the second pod when it prepares the device"
_MAY: Final = (
    "on 1 of 1 nodes that fit, the scheduler may choose a device that a claim with another "
    f"GpuConfig uses{_END}"
)


class Case(NamedTuple):
    name: str
    document: Document
    context: Context
    want: tuple[str, ...] = ()


SHORT: Final = allocated_document("short", "Short")
TWO: Final = claim(
    exactly("a"),
    exactly("b"),
    config=[config(time_slices("Short"), "a"), config(time_slices("Long"), "b")],
)

CASES: Final = (
    Case("another interval than a tenant's", sharing("Long"), cluster(SHORT), (_MAY,)),
    Case("the tenant's interval", sharing("Short"), cluster(SHORT)),
    Case("no configuration", claim(exactly()), cluster(SHORT)),
    Case("a tenant of another namespace is not named",
         sharing("Long"), cluster(allocated_document("short", "Short", "team-b")), (_MAY,)),
    Case("requests of one claim contradict each other", TWO, cluster(), (_MAY,)),
    Case("a device that cannot be shared", sharing("Long"), cluster(device=WHOLE)),
    Case("a driver that accepts it", sharing("Long"),
         cluster(SHORT, uniform_config_drivers=frozenset())),
    Case("another claim of the same files", sharing("Long"),
         cluster(claims={(NAMESPACE, "other"): sharing("Short")}, applied_together=True),
         ((f"claim or template other has another GpuConfig, and the scheduler may choose the same "
          f"device for both{_END}"),)),
    Case("another claim of the same files, in another namespace", sharing("Long"),
         cluster(claims={("team-b", "other"): sharing("Short")}, applied_together=True),
         ((f"claim or template in another namespace has another GpuConfig, and the scheduler may "
          f"choose the same device for both{_END}"),)),
    Case("another claim of the same files that agrees", sharing("Long"),
         cluster(claims={(NAMESPACE, "other"): sharing("Long")}, applied_together=True)),
    Case("another claim of a running cluster", sharing("Long"),
         cluster(claims={(NAMESPACE, "other"): sharing("Short")})),
    Case("an allocated claim beside one of its namespace",
         allocated_document("long", "Long"), cluster(SHORT, allocated_document("long", "Long")),
         (f"device gpu-0 of pool node-a is also in use by claim short with another GpuConfig{_END}",)),
    Case("an allocated claim beside one of another namespace",
         allocated_document("long", "Long"),
         cluster(allocated_document("short", "Short", "team-b"), allocated_document("long", "Long")),
         (("device gpu-0 of pool node-a is also in use by a claim in another namespace with "
          f"another GpuConfig{_END}"),)),
    Case("an allocated claim beside one that agrees",
         allocated_document("long", "Long"), cluster(allocated_document("other", "Long"), allocated_document("long", "Long"))),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_claims(case: Case) -> None:
    assert list(case.want) == messages(case.document, case.context)


def test_a_pod_is_warned_of_what_its_claims_contradict() -> None:
    pod = api_object(
        "Pod",
        "pod",
        NAMESPACE,
        spec={
            "containers": [{"name": "main", "image": "registry.example/app:1"}],
            "resourceClaims": [
                {"name": "a", "resourceClaimName": "short"},
                {"name": "b", "resourceClaimName": "long"},
            ],
        },
    )
    claims = {(NAMESPACE, "short"): sharing("Short"), (NAMESPACE, "long"): sharing("Long")}

    assert [_MAY] == messages(pod, cluster(claims=claims))
    agreeing = dict.fromkeys(claims, sharing("Short"))
    assert [] == messages(pod, cluster(claims=agreeing))
