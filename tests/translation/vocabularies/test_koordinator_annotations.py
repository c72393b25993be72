"""Koordinator's annotations: hints, joint allocation, partitions, presets, replaced keys.

Source of the rows: koordinator-sh/koordinator, apis/extension/device_share.go and
pkg/scheduler/plugins/deviceshare; docs/proposals/scheduling.
"""

from typing import Any, NamedTuple

import pytest

from findings.field_path import FieldPath, Key
from findings.finding import Finding
from testing.builders import (
    finding_texts,
    koordinator_annotations,
    koordinator_container,
    pod,
    pod_view,
)
from testing.documents import Document
from translation.model.intents import (
    Alignment,
    DeviceFilter,
    DeviceKind,
    Intent,
    LabelRequirement,
    Scope,
    Translation,
)
from translation.reading.legacy_pod import legacy_pod
from translation.vocabularies.koordinator import keys
from translation.vocabularies.koordinator.annotations import read_annotations
from translation.vocabularies.koordinator.translate import translate

HINT = "metadata.annotations[scheduling.koordinator.sh/device-allocate-hint]"
JOINT_KEY = Key("scheduling.koordinator.sh/device-joint-allocate")
JOINT = f"metadata.annotations[{JOINT_KEY.name}]"
PARTITION = "metadata.annotations[scheduling.koordinator.sh/gpu-partition-spec]"
ALLOCATED = "metadata.annotations[scheduling.koordinator.sh/device-allocated]"
REPLACE = "metadata.annotations[pod.koordinator.sh/replace-resources]"
COUNT = "spec.containers[0].resources.limits"


def read(container: Document, **annotations: object) -> Translation:
    return labelled(container, {}, **annotations)


def labelled(container: Document, labels: dict[str, str], /, **annotations: object) -> Translation:
    document = pod(container, annotations=koordinator_annotations(**annotations), labels=labels)
    return translate(legacy_pod(pod_view(document)))


def expression(operator: str, *values: str) -> dict[str, object]:
    return {"matchExpressions": [{"key": "a", "operator": operator, "values": list(values)}]}


class Hint(NamedTuple):
    name: str
    container: Document
    hint: dict[str, dict[str, Any]]
    want: dict[str, object]
    findings: tuple[str, ...] = ()


DROPPED = (f"warning policyDropped {HINT}",)
MALFORMED = (f"error malformedAnnotation {HINT}",)
RDMA = "koordinator.sh/rdma"
MLX = LabelRequirement(key="type", values=("mlx",))
UNFIT = (f"error outOfRange {HINT}",)

HINTS = (
    Hint(
        "every NIC",
        koordinator_container(rdma=100),
        {"rdma": {"allocateStrategy": "ApplyForAll"}},
        {"every": True},
    ),
    Hint(
        "every NIC, a share of each",
        koordinator_container(rdma=1),
        {"rdma": {"allocateStrategy": "ApplyForAll"}},
        {"every": True, "exclusive": False},
    ),
    Hint(
        "a strategy means nothing above 100 percent",
        koordinator_container(rdma=200),
        {"rdma": {"allocateStrategy": "ApplyForAll"}},
        {"every": False, "count": 2},
    ),
    Hint(
        "the amount is a number of NICs",
        koordinator_container(rdma=4),
        {"rdma": {"allocateStrategy": "RequestsAsCount"}},
        {"count": 4, "cores_percent": 1, "exclusive": False},
    ),
    Hint(
        "and of whole NICs",
        koordinator_container(rdma=4),
        {"rdma": {"allocateStrategy": "RequestsAsCount", "exclusivePolicy": "DeviceLevel"}},
        {"count": 4, "exclusive": True},
        (f"warning wholeDevice {COUNT}[koordinator.sh/rdma]",),
    ),
    Hint(
        "a strategy means nothing to GPUs",
        koordinator_container(gpu=50),
        {"gpu": {"allocateStrategy": "ApplyForAll"}},
        {"every": False, "count": 1},
        DROPPED,
    ),
    Hint(
        "all GPUs under one PCIe root",
        koordinator_container(gpu=200),
        {"gpu": {"requiredTopologyScope": "PCIe"}},
        {"within": Scope.PCIE_ROOT},
    ),
    Hint(
        "a scope means nothing to NICs",
        koordinator_container(rdma=200),
        {"rdma": {"requiredTopologyScope": "NUMANode"}},
        {"within": None},
        DROPPED,
    ),
    Hint(
        "a node holds everything anyway",
        koordinator_container(gpu=200),
        {"gpu": {"requiredTopologyScope": "Node"}},
        {"within": None},
    ),
    Hint(
        "one device is one device",
        koordinator_container(gpu=50),
        {"gpu": {"requiredTopologyScope": "Device"}},
        {"within": None},
    ),
    Hint(
        "two devices are not",
        koordinator_container(gpu=200),
        {"gpu": {"requiredTopologyScope": "Device"}},
        {},
        UNFIT,
    ),
    Hint(
        "shares of several GPUs have no common scope",
        koordinator_container(shared=2, ratio=100),
        {"gpu": {"requiredTopologyScope": "PCIe"}},
        {},
        UNFIT,
    ),
    Hint(
        "a GPU to itself",
        koordinator_container(gpu=50),
        {"gpu": {"exclusivePolicy": "DeviceLevel"}},
        {"exclusive": True, "memory_percent": None, "cores_percent": 100},
        (f"warning wholeDevice {COUNT}[koordinator.sh/gpu]",),
    ),
    Hint(
        "a whole one has no need of it",
        koordinator_container(gpu=100),
        {"gpu": {"exclusivePolicy": "DeviceLevel"}},
        {"exclusive": True},
    ),
    Hint(
        "virtual functions, and a PCIe root without others",
        koordinator_container(rdma=1),
        {"rdma": {"vfSelector": {}, "exclusivePolicy": "PCIeLevel"}},
        {"count": 1, "filter": DeviceFilter(resource=RDMA, virtual_function=True)},
        DROPPED,
    ),
    Hint(
        "an empty selector selects everything",
        koordinator_container(rdma=1),
        {"rdma": {"selector": {}}},
        {"count": 1, "filter": DeviceFilter(resource=RDMA)},
    ),
    Hint(
        "labels of Device objects",
        koordinator_container(rdma=1),
        {"rdma": {"selector": {"matchLabels": {"type": "mlx"}}}},
        {"filter": DeviceFilter(resource=RDMA, labels=(MLX,))},
    ),
    Hint(
        "labels of virtual functions, and of the physical ones",
        koordinator_container(rdma=1),
        {
            "rdma": {
                "selector": {"matchLabels": {"type": "mlx"}},
                "vfSelector": {
                    "matchExpressions": [
                        {"key": "a", "operator": "NotIn", "values": ["b", "c"]},
                        {"key": "d", "operator": "Exists"},
                        {"key": "e", "operator": "DoesNotExist"},
                    ]
                },
            }
        },
        {
            "filter": DeviceFilter(
                resource=RDMA,
                virtual_function=True,
                labels=(
                    MLX,
                    LabelRequirement(key="a", values=("b", "c"), negated=True),
                    LabelRequirement(key="d"),
                    LabelRequirement(key="e", negated=True),
                ),
            )
        },
    ),
    *(
        Hint(name, koordinator_container(rdma=1), {"rdma": {"selector": selector}}, {}, MALFORMED)
        for name, selector in (
            ("labels that are no texts", {"matchLabels": {"a": 1}}),
            ("labels that are a list", {"matchLabels": ["a"]}),
            ("an operator without values", expression("In")),
            ("an operator with values", expression("Exists", "b")),
            ("an unknown operator", expression("Near", "b")),
            ("a key that is too long", {"matchLabels": {"a" * 318: "b"}}),
            ("too many requirements", {"matchLabels": {f"a{index}": "b" for index in range(9)}}),
        )
    ),
    Hint(
        "an unknown strategy, which has no effect",
        koordinator_container(rdma=1),
        {"rdma": {"allocateStrategy": "Some"}},
        {"count": 1, "every": False},
        (f"warning policyDropped {HINT}",),
    ),
    Hint(
        "an unknown scope and policy, which have no effect",
        koordinator_container(rdma=1),
        {"rdma": {"requiredTopologyScope": "Rack", "exclusivePolicy": "Mine"}},
        {"within": None, "exclusive": False},
        (f"warning policyDropped {HINT}",) * 2,
    ),
    Hint(
        "names of fields in any case, as Go reads them",
        koordinator_container(gpu=200),
        {"gpu": {"RequiredTopologyScope": "PCIe"}},
        {"within": Scope.PCIE_ROOT},
    ),
    Hint(
        "types of devices only as they are written, as keys of maps are",
        koordinator_container(gpu=200),
        {"GPU": {"requiredTopologyScope": "PCIe"}},
        {"within": None},
    ),
)


@pytest.mark.parametrize("case", HINTS, ids=lambda case: case.name)
def test_hints(case: Hint) -> None:
    got = read(case.container, hint=case.hint)

    (intent,) = got.intents
    assert case.want == {field: getattr(intent, field) for field in case.want}
    assert case.findings == tuple(finding_texts(got.findings))


BOTH = koordinator_container(nvidia=2, rdma=1)
ALIGNED = {"deviceTypes": ["gpu", "rdma"]}
SAME = ALIGNED | {"requiredScope": "SamePCIe"}


def aligned(*kinds: DeviceKind, required: bool) -> Alignment:
    return Alignment(
        kinds=kinds, required=required, path=FieldPath.of("metadata", "annotations", JOINT_KEY)
    )


ALIGNMENTS = (
    (
        "preferred",
        BOTH,
        {"joint": ALIGNED},
        aligned(DeviceKind.GPU, DeviceKind.NIC, required=False),
    ),
    ("required", BOTH, {"joint": SAME}, aligned(DeviceKind.GPU, DeviceKind.NIC, required=True)),
    (
        "the first type is dealt out",
        BOTH,
        {"joint": {"deviceTypes": ["rdma", "gpu"]}},
        aligned(DeviceKind.NIC, DeviceKind.GPU, required=False),
    ),
    (
        "types that are not asked for do not count",
        BOTH,
        {"joint": {"deviceTypes": ["fpga", "gpu", "rdma", "xpu"]}},
        aligned(DeviceKind.GPU, DeviceKind.NIC, required=False),
    ),
    (
        "every NIC is aligned with nothing",
        BOTH,
        {"joint": SAME, "hint": {"rdma": {"allocateStrategy": "ApplyForAll"}}},
        None,
    ),
    ("one type is aligned with nothing", koordinator_container(rdma=1), {"joint": SAME}, None),
)


@pytest.mark.parametrize(
    ("_name", "asking", "annotations", "want"), ALIGNMENTS, ids=lambda row: str(row)[:50]
)
def test_alignments(
    _name: str, asking: Document, annotations: dict[str, object], want: Alignment | None
) -> None:
    got = read(asking, **annotations)

    assert want == got.alignment
    assert (want is None) is (f"warning policyDropped {JOINT}" in finding_texts(got.findings))


@pytest.mark.parametrize("name", [keys.HINT, keys.JOINT, keys.PARTITION])
def test_the_fix_of_malformed_json_is_json_that_is_read(name: str) -> None:
    findings: list[Finding] = []
    read_annotations({name: "{"}, findings)
    (malformed,) = findings
    example = malformed.fix.removeprefix("write JSON such as ")
    findings.clear()

    read_annotations({name: example}, findings)

    assert findings == []


class AnnotationCase(NamedTuple):
    name: str
    annotations: dict[str, object]
    findings: tuple[str, ...]


ANSWERS = (
    AnnotationCase(
        "a scope that does not exist",
        {"joint": ALIGNED | {"requiredScope": "SameRack"}},
        (f"warning policyDropped {JOINT}",),
    ),
    AnnotationCase("a hint that is no JSON", {"hint": "{"}, (f"error malformedAnnotation {HINT}",)),
    AnnotationCase(
        "a hint of another form", {"hint": ["gpu"]}, (f"error malformedAnnotation {HINT}",)
    ),
    AnnotationCase(
        "a restricted partition",
        {"partition": {"allocatePolicy": "Restricted", "ringBusBandwidth": "200Gi"}},
        (f"warning policyDropped {PARTITION}", f"error cannotExpress {PARTITION}"),
    ),
    AnnotationCase(
        "a partition under the policy BestEffort",
        {"partition": {"allocatePolicy": "BestEffort"}},
        (),
    ),
    AnnotationCase("an empty partition spec", {"partition": {}}, ()),
    AnnotationCase(
        "a policy that does not exist",
        {"partition": {"allocatePolicy": "Loose"}},
        (f"warning policyDropped {PARTITION}",),
    ),
    AnnotationCase(
        "the devices of an earlier pod, as in a restored one",
        {"allocated": {"gpu": [{"minor": 0}]}},
        (f"warning allocationIgnored {ALLOCATED}",),
    ),
)


@pytest.mark.parametrize("case", ANSWERS, ids=lambda case: case.name)
def test_findings_of_annotations(case: AnnotationCase) -> None:
    got = read(BOTH, **case.annotations)

    assert case.findings == tuple(finding_texts(got.findings))


def test_a_partition_requires_whole_gpus_to_be_one() -> None:
    whole, share = read(BOTH, partition={}), read(koordinator_container(gpu=50), partition={})

    assert [True, False] == [reading.intents[0].partition for reading in (whole, share)]
    assert [f"warning policyDropped {PARTITION}"] == finding_texts(share.findings)


def test_annotations_mean_nothing_to_a_pod_without_devices() -> None:
    got = read(koordinator_container(rdma=0), joint=ALIGNED, partition={})

    assert Translation() == got


GATED = (f"info requiresFeatureGate {REPLACE}",)
REPLACEMENTS = (
    (
        "one key becomes another",
        koordinator_container(nvidia=50),
        "nvidia.com/gpu:koordinator.sh/gpu",
        50,
        GATED,
    ),
    (
        "two do",
        koordinator_container(core=1, ratio=50),
        "koordinator.sh/gpu-core:koordinator.sh/gpu.shared,koordinator.sh/unknown:cpu",
        0,
        GATED,
    ),
    (
        "an empty name deletes",
        koordinator_container(core=30, ratio=50),
        " koordinator.sh/gpu-core: , nonsense",
        0,
        (),
    ),
    (
        "a key that is not read",
        koordinator_container(core=30, ratio=50),
        "example.com/gpu:koordinator.sh/gpu",
        30,
        (f"warning policyDropped {REPLACE}",),
    ),
)


@pytest.mark.parametrize(
    ("_name", "asking", "text", "cores", "findings"), REPLACEMENTS, ids=lambda row: str(row)[:40]
)
def test_keys_are_replaced_first(
    _name: str, asking: Document, text: str, cores: int, findings: tuple[str, ...]
) -> None:
    got = read(asking, replace=text)

    (intent,) = got.intents
    assert (50, cores) == (intent.memory_percent, intent.cores_percent)
    assert findings == tuple(finding_texts(got.findings))


def test_a_key_that_becomes_a_strangers_is_refused() -> None:
    got = read(koordinator_container(gpu=50), replace="koordinator.sh/gpu:example.com/gpu")

    assert [f"error cannotExpress {REPLACE}"] == finding_texts(got.findings)


PROVIDER = {"koordinator.sh/gpu-isolation-provider": "HAMi-core"}
NOT_INJECTED = ["warning notInjected metadata.labels[koordinator.sh/gpu-isolation-provider]"]


@pytest.mark.parametrize(
    ("asking", "want"),
    [
        (koordinator_container(gpu=50), NOT_INJECTED),
        (koordinator_container(gpu=100), []),
        (koordinator_container(rdma=1), []),
    ],
    ids=["a share", "a whole GPU", "no GPU"],
)
def test_isolation_is_koordlets(asking: Document, want: list[str]) -> None:
    got = labelled(asking, PROVIDER)

    assert want == finding_texts(got.findings)


def test_a_label_changes_no_intent() -> None:
    def intents(labels: dict[str, str]) -> tuple[Intent, ...]:
        return labelled(koordinator_container(gpu=50), labels).intents

    assert intents({}) == intents(PROVIDER)
