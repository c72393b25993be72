"""Fields of gates that are off: the API server drops them, and says nothing."""

from typing import Any

import pytest

from allocator.model.feature_gates import features_of
from kube.api.meta import convert
from kube.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from rules.context.context import Context
from rules.engine.engine import Target, validate
from testing import documents
from testing.documents import Document

SHARE = documents.exactly(capacity={"requests": {"memory": "10Gi"}})
TOLERANT = documents.exactly(tolerations=[{"operator": "Exists"}])
ADMIN = documents.exactly(adminAccess=True)
DISTINCT: documents.Document = {
    "constraints": [{"distinctAttribute": f"{documents.EXAMPLE}/model"}]
}
REQUESTS = ("spec", "devices", "requests", "0", "exactly")
CASES = [
    ("DRAConsumableCapacity", documents.claim(SHARE), "error sharesNotSupported spec.devices.requests[0].exactly.capacity"),
    ("DRAConsumableCapacity", documents.claim(documents.exactly(count=2), **DISTINCT),
     "warning featureGateOff spec.devices.constraints[0].distinctAttribute"),
    ("DRADeviceTaints", documents.claim(TOLERANT), "warning featureGateOff spec.devices.requests[0].exactly.tolerations"),
    ("DRAAdminAccess", documents.claim(ADMIN), "warning featureGateOff spec.devices.requests[0].exactly.adminAccess"),
    ("DRAConsumableCapacity", documents.resource_slice(documents.device(allowMultipleAllocations=True)),
     "warning featureGateOff spec.devices[0].allowMultipleAllocations"),
    ("DRADeviceTaints", documents.resource_slice(documents.device(taints=[{"key": "a", "effect": "NoSchedule"}])),
     "warning featureGateOff spec.devices[0].taints"),
    ("DRAExtendedResource", documents.device_class(name="gpu", extendedResourceName="nvidia.com/gpu"),
     "warning featureGateOff spec.extendedResourceName"),
]  # fmt: skip


def gate_findings(document: Document, **gates: bool) -> list[str]:
    kinds = (DeviceClass, ResourceClaim, ResourceSlice)
    kind: Any = next(kind for kind in kinds if kind.__name__ == document["kind"])
    target = Target(view=convert(document, kind), raw=document, namespace="team")
    findings = validate(target, Context(features=features_of(gates)))
    return [
        f"{finding.severity} {finding.code} {finding.path}"
        for finding in findings
        if finding.code in {"sharesNotSupported", "featureGateOff"}
    ]


@pytest.mark.parametrize(("gate", "document", "expected"), CASES)
def test_a_field_is_dropped_without_its_gate(gate: str, document: Any, expected: str) -> None:
    assert gate_findings(document, **{gate: False}) == [expected]
    assert gate_findings(document) == []
