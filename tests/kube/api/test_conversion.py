"""Older versions of DRA's kinds as v1, and paths in them back.

Source of the expected values: k8s.io/kubernetes v1.37.1, pkg/apis/resource/v1beta1/conversion.go.
"""

import copy
from typing import Any, NamedTuple

import pytest

from kube.api.conversion import CURRENT, current_version, to_current_version, to_original_path
from testing.documents import Document

V1BETA1 = "resource.k8s.io/v1beta1"
V1BETA2 = "resource.k8s.io/v1beta2"


def claim(version: str, *requests: Any) -> Document:
    spec = {"devices": {"requests": list(requests), "constraints": [{"matchAttribute": "a/b"}]}}
    return {"apiVersion": version, "kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": spec}


def template(version: str, *requests: Any) -> Document:
    spec = {"metadata": {"labels": {}}, "spec": {"devices": {"requests": list(requests)}}}
    return {"apiVersion": version, "kind": "ResourceClaimTemplate", "spec": spec}


def resource_slice(version: str, *devices: Any, **spec: Any) -> Document:
    spec = {"driver": "d", "pool": {"name": "p"}, **spec, "devices": list(devices)}
    return {"apiVersion": version, "kind": "ResourceSlice", "spec": spec}


def device_class(version: str) -> Document:
    spec = {"selectors": [{"cel": {"expression": "true"}}], "extendedResourceName": "a/b"}
    return {"apiVersion": version, "kind": "DeviceClass", "spec": spec}


EXACT = {
    "deviceClassName": "gpu",
    "selectors": [{"cel": {"expression": "true"}}],
    "allocationMode": "ExactCount",
    "count": 2,
    "adminAccess": False,
    "tolerations": [{"operator": "Exists"}],
    "capacity": {"requests": {"memory": "1Gi"}},
}
ALTERNATIVE = {"name": "a", "deviceClassName": "gpu", "count": 1}
BASIC = {
    "attributes": {"type": {"string": "gpu"}},
    "capacity": {"memory": {"value": "80Gi", "requestPolicy": {"default": "1Gi"}}},
    "consumesCounters": [{"counterSet": "s", "counters": {"memory": {"value": "80Gi"}}}],
    "nodeName": "n",
    "taints": [{"key": "k", "effect": "NoSchedule"}],
    "allowMultipleAllocations": True,
    "bindsToNode": True,
    "bindingConditions": ["a"],
    "bindingFailureConditions": ["b"],
}


class Case(NamedTuple):
    name: str
    want: Any
    document: Document


CASES = (
    Case("a request", claim(CURRENT, {"name": "g", "exactly": EXACT}), claim(V1BETA1, {"name": "g", **EXACT})),
    Case("a request of a template",
         template(CURRENT, {"name": "g", "exactly": EXACT}), template(V1BETA1, {"name": "g", **EXACT})),
    Case("alternatives", claim(CURRENT, {"name": "g", "firstAvailable": [ALTERNATIVE]}),
         claim(V1BETA1, {"name": "g", "firstAvailable": [ALTERNATIVE]})),
    Case("a request without a field that counts", claim(CURRENT, {"name": "g"}),
         claim(V1BETA1, {"name": "g", "deviceClassName": "", "count": 0, "selectors": None})),
    Case("adminAccess: false is a field that counts",
         claim(CURRENT, {"name": "g", "exactly": {"adminAccess": False}}),
         claim(V1BETA1, {"name": "g", "adminAccess": False})),
    Case("both shapes at once are converted, and rejected later",
         claim(CURRENT, {"name": "g", "exactly": {"count": 1}, "firstAvailable": [ALTERNATIVE]}),
         claim(V1BETA1, {"name": "g", "count": 1, "firstAvailable": [ALTERNATIVE]})),
    Case("exactly is no field of v1beta1", claim(CURRENT, {"name": "g"}),
         claim(V1BETA1, {"name": "g", "exactly": EXACT})),
    Case("a field that no version has stays", claim(CURRENT, {"name": "g", "x": 1}),
         claim(V1BETA1, {"name": "g", "x": 1})),
    Case("a device", resource_slice(CURRENT, {"name": "a", **BASIC}),
         resource_slice(V1BETA1, {"name": "a", "basic": BASIC})),
    Case("a device without basic", resource_slice(CURRENT, {"name": "a"}), resource_slice(V1BETA1, {"name": "a"})),
    Case("fields of a device outside basic are none of v1beta1",
         resource_slice(CURRENT, {"name": "a"}), resource_slice(V1BETA1, {"name": "a", **BASIC})),
    Case("an empty node name and allNodes: false are absent",
         resource_slice(CURRENT, nodeSelector={}), resource_slice(V1BETA1, nodeSelector={}, nodeName="", allNodes=False)),
    Case("allNodes: true stays", resource_slice(CURRENT, allNodes=True), resource_slice(V1BETA1, allNodes=True)),
    Case("a class has one shape", device_class(CURRENT), device_class(V1BETA1)),
    Case("a claim of v1beta2 has the shape of v1",
         claim(CURRENT, {"name": "g", "exactly": EXACT}), claim(V1BETA2, {"name": "g", "exactly": EXACT})),
    Case("a slice of v1beta2 has the shape of v1",
         resource_slice(CURRENT, {"name": "a", **BASIC}), resource_slice(V1BETA2, {"name": "a", **BASIC})),
    Case("v1 stays", claim(CURRENT, {"name": "g", "count": 1}), claim(CURRENT, {"name": "g", "count": 1})),
    Case("other versions stay", claim("resource.k8s.io/v1alpha3"), claim("resource.k8s.io/v1alpha3")),
    Case("other kinds stay", {"apiVersion": V1BETA1, "kind": "X"}, {"apiVersion": V1BETA1, "kind": "X"}),
    Case("values of the wrong type stay in their place",
         claim(CURRENT, "a", {"name": "g", "exactly": {"count": "1"}}), claim(V1BETA1, "a", {"name": "g", "count": "1"})),
    Case("so do objects of the wrong type",
         {"apiVersion": CURRENT, "kind": "ResourceClaim", "spec": []},
         {"apiVersion": V1BETA1, "kind": "ResourceClaim", "spec": []}),
    Case("and a basic of the wrong type",
         resource_slice(CURRENT, {"name": "a", "basic": 1}, 2), resource_slice(V1BETA1, {"name": "a", "basic": 1}, 2)),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_to_current_version(case: Case) -> None:
    before = copy.deepcopy(case.document)

    assert case.want == to_current_version(case.document)
    assert before == case.document
    assert case.want == to_current_version(to_current_version(case.document))


def all_paths(value: Any, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    if isinstance(value, dict):
        children: Any = value.items()
    else:
        children = enumerate(value) if isinstance(value, list) else ()
    return [
        path,
        *(all_path for key, child in children for all_path in all_paths(child, (*path, key))),
    ]


def value_at(document: Any, path: tuple[object, ...]) -> Any:
    for step in path:
        document = document[step]
    return document


@pytest.mark.parametrize(
    "document",
    [
        claim(V1BETA1, {"name": "a", **EXACT}, {"name": "b", "firstAvailable": [ALTERNATIVE]}),
        template(V1BETA1, {"name": "a", **EXACT}),
        resource_slice(V1BETA1, {"name": "a", "basic": BASIC}, nodeName="n"),
        device_class(V1BETA1),
        claim(V1BETA2, {"name": "a", "exactly": EXACT}),
        resource_slice(V1BETA2, {"name": "a", **BASIC}),
    ],
    ids=["claim", "template", "slice", "class", "claim of v1beta2", "slice of v1beta2"],
)
def test_a_path_leads_to_the_same_value_in_the_original(document: Document) -> None:
    current_document = to_current_version(document)
    version, kind = document["apiVersion"], document["kind"]

    leaves = [
        path
        for path in all_paths(current_document)
        if not isinstance(value_at(current_document, path), dict | list) and path != ("apiVersion",)
    ]

    assert leaves
    for path in leaves:
        original = to_original_path(path, version, kind)
        assert value_at(current_document, path) == value_at(document, original)


def test_the_path_of_exactly_is_the_request_in_the_original() -> None:
    path = ("spec", "devices", "requests", 0, "exactly")

    assert path[:-1] == to_original_path(path, V1BETA1, "ResourceClaim")
    assert path == to_original_path(path, V1BETA2, "ResourceClaim")


@pytest.mark.parametrize(
    ("want", "version", "kind"),
    [
        (CURRENT, V1BETA1, "ResourceSlice"),
        (CURRENT, V1BETA2, "DeviceClass"),
        (V1BETA2, V1BETA2, "DeviceTaintRule"),
        ("apps/v1beta1", "apps/v1beta1", "Deployment"),
    ],
)
def test_current_version(want: str, version: str, kind: str) -> None:
    assert want == current_version(version, kind)
