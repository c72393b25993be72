"""Projections keep the fields that are read, and values that slices have in common once."""

import json
from collections.abc import Iterable
from typing import Any, Final

import pytest

from clusterstate.projections import (
    project_claim,
    project_node,
    project_slice,
    project_template,
)
from kube.api.meta import decode, encode
from kube.api.resource import (
    Device,
    DeviceClaim,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceSlice,
)
from testing.allocation.builders import amount, consumes, counter_set, device, slice_of
from testing.documents import Document

FULL: Final = device(
    "gpu-0",
    consumes("gpu-0", memory="10Gi", engines=2, groups=("mig",)),
    attributes={"model": "A100", "index": 3, "healthy": True, "names": ("a", "b")},
    capacity={"memory": amount("80Gi", "1Gi", min="1Gi", step="1Gi"), "cores": "100"},
)


def test_heartbeats_change_nothing_of_a_node() -> None:
    def beat(number: int) -> bytes:
        conditions = [{"type": "Ready", "lastHeartbeatTime": f"2026-11-20T00:00:{number:02d}Z"}]
        metadata = {"name": "a", "resourceVersion": str(number), "labels": {"a": "b"}}
        return json.dumps({"metadata": metadata, "status": {"conditions": conditions}}).encode()

    assert project_node(beat(1)) == project_node(beat(2))


def test_an_allocated_claim_is_projected_to_its_allocation() -> None:
    result = {"request": "gpu", "driver": "a.b", "pool": "p", "device": "d"}
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
    claim: Document = {
        "metadata": {"name": "a", "namespace": "b", "labels": {"c": "d"}},
        "spec": {"devices": {"requests": [request]}},
    }

    waiting = project_claim(json.dumps(claim).encode())
    claim["status"] = {"allocation": {"devices": {"results": [result]}}}
    projected_claim = project_claim(json.dumps(claim).encode())

    assert waiting.spec.devices.requests
    assert projected_claim.spec.devices == DeviceClaim(
        requests=(DeviceRequest(name="gpu", exactly=ExactDeviceRequest(device_class_name="gpu")),)
    )
    assert projected_claim.status is not None
    assert projected_claim.status.allocation is not None
    assert projected_claim.status.allocation.devices.results
    assert waiting.metadata == projected_claim.metadata


def claim_with_parameters(*parameters: Document, allocated: bool = False) -> Document:
    config: list[Document] = [
        {"opaque": {"driver": "a.b", "parameters": entry}} for entry in parameters
    ]
    claim: Document = {"metadata": {"name": "a"}, "spec": {"devices": {"config": config}}}
    if allocated:
        result = {"request": "gpu", "driver": "a.b", "pool": "p", "device": "d", "shareID": "1"}
        config = [{**entry, "source": "FromClaim"} for entry in config]
        claim["status"] = {"allocation": {"devices": {"results": [result], "config": config}}}
    return claim


def kept_parameters(document: Document) -> list[Any]:
    """Return the parameters that the cache of claims keeps."""
    projected_claim = project_claim(json.dumps(document).encode())
    status, config = projected_claim.status, projected_claim.spec.devices.config
    if status is not None and status.allocation is not None:
        entries: Iterable[Any] = status.allocation.devices.config or ()
    else:
        entries = config or ()
    return [entry.opaque.parameters for entry in entries]


@pytest.mark.parametrize("allocated", [False, True], ids=["waiting", "allocated"])
def test_parameters_of_too_many_values_are_not_kept(allocated: bool) -> None:
    few = {"kind": "GpuConfig", "sharing": {"strategy": "MPS", "sizes": [1, 2]}}
    wide: Document = {"a": [[] for _ in range(3000)]}
    deep: Document = json.loads('{"a":' + "[" * 900 + "]" * 900 + "}")

    def kept(*parameters: Document) -> list[Any]:
        return kept_parameters(claim_with_parameters(*parameters, allocated=allocated))

    assert kept(few, {}) == [few, {}]
    assert kept(few, wide, few) == [few, {}, few]
    assert kept(deep, few, deep) == [deep, few, {}]
    assert sum(map(bool, kept(*[{"a": list(range(100))}] * 32))) == 9


def test_a_template_is_bounded_like_a_claim() -> None:
    wide: Document = {"a": [[] for _ in range(3000)]}
    template = {"metadata": {"name": "a"}, "spec": {"spec": claim_with_parameters(wide)["spec"]}}

    config = project_template(json.dumps(template).encode()).spec.spec.devices.config

    assert config is not None
    assert [entry.opaque.parameters for entry in config if entry.opaque] == [{}]


# --- slices ---------------------------------------------------------------------------------------


def projected(*devices: Device, name: str = "slice-0") -> ResourceSlice:
    return project_slice(encode(slice_of(*devices, name=name)))


def test_a_slice_is_projected_to_all_of_its_spec() -> None:
    slice_ = slice_of(FULL, device("gpu-1"), counters=(counter_set("gpu-0", memory="80Gi"),))
    resource_slice = decode(encode(slice_), ResourceSlice)

    assert encode(resource_slice.spec) == encode(project_slice(encode(slice_)).spec)


def test_slices_share_equal_values() -> None:
    first, second = (
        (projected(FULL, name=name).spec.devices or ())[0] for name in ("slice-0", "slice-1")
    )

    assert first.attributes is not None
    assert second.attributes is not None
    assert all(first.attributes[name] is second.attributes[name] for name in first.attributes)
    assert first.capacity is second.capacity
    assert first.consumes_counters is second.consumes_counters


def test_quantities_keep_their_texts_where_their_values_are_equal() -> None:
    texts = ("1Ki", "1024")
    for text in texts:
        device_ = device("gpu-0", consumes("s", memory=text), capacity={"memory": text})
        (device_,) = projected(device_).spec.devices or ()

        assert encode(device_) == encode(device_)
