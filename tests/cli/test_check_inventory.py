"""`drawbridge check` against an inventory: the errors there, and those that are only warnings."""

from typing import Any, NamedTuple

import msgspec
import pytest

from kube.manifests.dump import dump_yaml
from testing import documents
from testing import rule_cases as cases
from testing.command import drawbridge, finding_lines
from testing.documents import api_object

Document = documents.Document

DRIVER = "gpu.example.com"
CLASS = documents.device_class(f'device.driver == "{DRIVER}"')
NAME = CLASS["metadata"]["name"]
GPUS = [
    documents.device(f"gpu-{number}", capacity={"memory": {"value": "80Gi"}}) for number in range(4)
]
SLICE = documents.resource_slice(*GPUS)
_EXACT = "ResourceClaim/default/validated spec.devices.requests[0].exactly"
_MEMORY = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("100Gi")) >= 0'


def asking(**fields: Any) -> Document:
    return documents.claim(documents.exactly(deviceClassName=NAME, **fields))


def check(*documents: Document, flags: tuple[str, ...] = ()) -> list[str]:
    result = drawbridge("check", "-f", "-", "-o", "json", *flags, stdin=dump_yaml(documents))
    assert result.exit_code in (0, 1), result.stderr
    document = msgspec.json.decode(result.stdout)
    has_errors = any(finding["severity"] == "error" for finding in document["findings"])
    assert result.exit_code == has_errors
    return finding_lines(document)


class Case(NamedTuple):
    name: str
    documents: tuple[Document, ...]
    expected_lines: tuple[str, ...] = ()


TOO_MUCH = asking(capacity={"requests": {"memory": "100Gi"}})
TOO_MANY = asking(count=5)
OTHER = documents.resource_slice(*GPUS, driver="nic.example.com", name="other")
SHARED = documents.resource_slice(*GPUS, allNodes=True)
UNREACHED = documents.resource_slice(
    *GPUS,
    nodeSelector={"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]},
)  # fmt: skip

CASES = (
    Case("an amount that devices have", (asking(capacity={"requests": {"memory": "80Gi"}}), SLICE)),
    Case(
        "an amount above what devices have",
        (TOO_MUCH, SLICE),
        (f"error exceedsLargestDevice {_EXACT}.capacity.requests[memory]",),
    ),
    Case("a count that a node has", (asking(count=4), SLICE)),
    Case(
        "a count above what a node has",
        (TOO_MANY, SLICE),
        (f"error exceedsLargestNode {_EXACT}.count",),
    ),
    Case(
        "a count above what a node has, of devices of all nodes",
        (TOO_MANY, SHARED),
        (f"error exceedsLargestNode {_EXACT}.count",),
    ),
    Case("a count that devices of all nodes have", (asking(count=4), SHARED)),
    Case(
        "a selector that no device satisfies",
        (asking(selectors=[documents.cel(_MEMORY)]), SLICE),
        (f"warning selectorMatchesNothing {_EXACT}.selectors",),
    ),
    Case("no inventory", (TOO_MUCH,)),
    Case(
        "a driver without slices",
        (TOO_MANY, OTHER),
        (f"warning noDevices {_EXACT}.deviceClassName",),
    ),
    Case(
        "an incomplete pool",
        (TOO_MANY, documents.resource_slice(*GPUS, count=2)),
        (f"warning exceedsLargestNode {_EXACT}.count",),
    ),
    Case(
        "an amount above what devices of nodes that nobody names have",
        (TOO_MUCH, UNREACHED),
        (f"error exceedsLargestDevice {_EXACT}.capacity.requests[memory]",),
    ),
    Case("a count that nodes that nobody names may have", (asking(count=4), UNREACHED)),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_claims(case: Case) -> None:
    assert list(case.expected_lines) == check(CLASS, *case.documents)


def grouped(name: str) -> Document:
    consumed = {
        "counterSet": "gpu-0",
        "counters": {"slices": {"value": "1"}},
        "compatibilityGroups": [name],
    }
    return documents.device(name, **documents.attributes(mode=name), consumesCounters=[consumed])


COUNTERS = {"name": "gpu-0", "counters": {"slices": {"value": "7"}}}
GROUPED = (
    documents.resource_slice(grouped("mig"), grouped("mps"), count=2),
    documents.resource_slice(name="counters", count=2, sharedCounters=[COUNTERS]),
)
GROUPS_ON = ("--feature-gates", "DRADeviceCompatibilityGroups=true")
BOTH = documents.claim(
    *(
        documents.exactly(
            name,
            deviceClassName=NAME,
            selectors=[documents.cel(f'device.attributes["{DRIVER}"].mode == "{name}"')],
        )
        for name in ("mig", "mps")
    )
)


def test_devices_behind_a_disabled_feature_gate_are_a_warning() -> None:
    requests = _EXACT.removesuffix("[0].exactly")

    assert check(CLASS, *GROUPED, BOTH) == [
        f"warning noUsableDevice {requests}[{index}].exactly" for index in (0, 1)
    ]


def test_compatibility_groups_are_evaluated_with_their_feature_gate() -> None:
    assert check(CLASS, *GROUPED, asking(), flags=GROUPS_ON) == []
    assert check(CLASS, *GROUPED, BOTH, flags=GROUPS_ON) == [
        "error incompatibleModes ResourceClaim/default/validated spec.devices.requests"
    ]


def test_devices_of_an_invalid_pool_are_a_warning() -> None:
    alone = documents.resource_slice(grouped("mig"))

    assert f"warning noUsableDevice {_EXACT}" in check(CLASS, alone, asking(), flags=GROUPS_ON)


TEMPLATE = documents.template(documents.exactly(deviceClassName=NAME, count=5))
POD = cases.pod({"name": "gpus", "resourceClaimTemplateName": "validated"})
_PLACE = "resourceClaims[0].resourceClaimTemplateName"


def workload(api_version: str, kind: str, *path: str) -> Document:
    """A workload with its pod template below a path."""
    document: dict[str, Any] = {"spec": POD["spec"]}
    for step in reversed(path):
        document = {step: document}
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "w"}, **document}


@pytest.mark.parametrize(
    ("kind", "document"),
    [
        ("Pod", {**POD, "metadata": {"name": "w"}}),
        *(
            (kind, workload("apps/v1", kind, "spec", "template"))
            for kind in ("DaemonSet", "Deployment", "ReplicaSet", "StatefulSet")
        ),
        ("Job", workload("batch/v1", "Job", "spec", "template")),
        (
            "CronJob",
            workload("batch/v1", "CronJob", "spec", "jobTemplate", "spec", "template"),
        ),
    ],
)
def test_what_uses_a_template_is_validated_with_it(kind: str, document: Document) -> None:
    path = "spec.jobTemplate.spec.template." if kind == "CronJob" else "spec.template."
    path = "" if kind == "Pod" else path

    assert check(CLASS, SLICE, TEMPLATE, document) == [
        (
            "error exceedsLargestNode ResourceClaimTemplate/default/validated"
            " spec.spec.devices.requests[0].exactly.count"
        ),
        f"error exceedsLargestNode {kind}/default/w {path}spec.{_PLACE}",
    ]


def test_a_pod_of_a_controller_is_only_warned_of() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "controller": True}
    document = {**POD, "metadata": {"name": "w", "ownerReferences": [owner]}}

    assert check(CLASS, SLICE, TEMPLATE, document)[1:] == [
        f"warning exceedsLargestNode Pod/default/w spec.{_PLACE}"
    ]


def test_what_is_in_use_is_a_warning() -> None:
    results = [
        {"request": "gpu", "driver": DRIVER, "pool": "node-a", "device": f"gpu-{number}"}
        for number in range(3)
    ]
    holder = {
        **asking(count=3),
        "metadata": {"name": "holder"},
        "status": {"allocation": {"devices": {"results": results}}},
    }

    assert check(CLASS, SLICE, holder, asking(count=1)) == []
    assert check(CLASS, SLICE, holder, asking(count=2)) == [
        "warning doesNotFitNow ResourceClaim/default/validated spec.devices"
    ]


def test_a_class_that_maps_more_than_a_name_means_is_warned_about_with_its_pods() -> None:
    driver, key = "gpu.nvidia.com", "nvidia.com/mig-3g.40gb"
    mapping = documents.device_class(f'device.driver == "{driver}"')
    mapping["metadata"]["name"] = "mig.nvidia.com"
    mapping["spec"]["extendedResourceName"] = key
    container = {"name": "c", "image": "a", "resources": {"limits": {key: "1"}}}
    pod = api_object("Pod", "p", "default", spec={"containers": [container]})

    lines = check(mapping, pod)

    assert [line.split(":")[0] for line in lines if "mappingTooWide" in line] == [
        "warning mappingTooWide DeviceClass//mig.nvidia.com spec.extendedResourceName",
        f"warning mappingTooWide Pod/default/p spec.containers[0].resources.limits[{key}]",
    ]
