"""HAMi's annotations: the devices that will do, their sharing, and the dropped ones."""

from typing import Any, NamedTuple

import msgspec
import pytest

from testing.builders import finding_texts, gpus, legacy_view
from translation.model.intents import DeviceFilter, DeviceKind, Translation
from translation.vocabularies.hami.translate import translate

COUNT = "spec.containers[0].resources.limits[nvidia.com/gpu]"


def translated(annotations: dict[str, str], **amounts: Any) -> Translation:
    pod = msgspec.structs.replace(legacy_view(gpus(1, **amounts)), annotations=annotations)
    return translate(pod)


class Filter(NamedTuple):
    name: str
    annotations: dict[str, str]
    want: DeviceFilter


def only(**fields: Any) -> DeviceFilter:
    return DeviceFilter(**fields)


TYPE, NO_TYPE = "nvidia.com/use-gputype", "nvidia.com/nouse-gputype"
UUID, NO_UUID = "nvidia.com/use-gpuuuid", "nvidia.com/nouse-gpuuuid"

FILTERS = (
    Filter("no annotation", {}, only()),
    Filter("one model", {TYPE: "A100"}, only(models=("a100",))),
    Filter("several models, trimmed", {TYPE: " A100 , V100 "}, only(models=("a100", "v100"))),
    Filter("a trailing comma names nothing more", {TYPE: "A100,"}, only(models=("a100",))),
    Filter("a blank list is no constraint", {TYPE: "  ", UUID: "", NO_TYPE: " "}, only()),
    Filter(
        "older HAMi put NVIDIA- before every model",
        {TYPE: "NVIDIA-NVIDIA A100"},
        only(models=("nvidia a100",)),
    ),
    Filter(
        "a selector lowers ASCII alone, and so do the models that it looks for",
        {TYPE: "\u0130X,\u212aX", NO_TYPE: "\u00c4X"},
        only(models=("\u0130x", "\u212ax"), not_models=("\u00c4x",)),
    ),
    Filter("the brand, which every card has in its name", {TYPE: "NVIDIA"}, only()),
    Filter("the prefix of every card", {TYPE: "A100,NVIDIA-"}, only()),
    Filter("models to avoid", {NO_TYPE: "T4,P4"}, only(not_models=("t4", "p4"))),
    Filter("nothing to avoid", {NO_TYPE: ",", NO_UUID: ", ,"}, only()),
    Filter(
        "use and avoid hold together",
        {TYPE: "A100", NO_TYPE: "40GB"},
        only(models=("a100",), not_models=("40gb",)),
    ),
    Filter("UUIDs keep their case", {UUID: "GPU-aB, GPU-c"}, only(uuids=("GPU-aB", "GPU-c"))),
    Filter("UUIDs to avoid", {NO_UUID: "GPU-1"}, only(not_uuids=("GPU-1",))),
    Filter("quotes are text", {UUID: '"] || true || ["'}, only(uuids=('"] || true || ["',))),
)


@pytest.mark.parametrize("case", FILTERS, ids=lambda case: case.name)
def test_filter(case: Filter) -> None:
    got = translated(case.annotations, mem=10)

    assert [case.want] == [intent.filter for intent in got.intents]
    assert finding_texts(got.findings) == []


def test_a_list_that_excludes_the_brand_excludes_every_card() -> None:
    got = translated({NO_TYPE: "T4,nvidia"}, mem=10)

    assert [f"error emptyDeviceList metadata.annotations[{NO_TYPE}]"] == finding_texts(got.findings)


class Case(NamedTuple):
    name: str
    annotations: dict[str, str]
    want: dict[str, object]
    findings: tuple[str, ...] = ()


MODE, NUMA = "nvidia.com/vgpu-mode", "nvidia.com/numa-bind"
POLICY, NODE_POLICY = "hami.io/gpu-scheduler-policy", "hami.io/node-scheduler-policy"
WEIGHTS = "hami.io/device-scoring-weights"


def at(annotation: str) -> str:
    return f"metadata.annotations[{annotation}]"


WISHES = (
    Case("mode hami-core is how it is anyway", {MODE: "hami-core"}, {"kind": DeviceKind.GPU}),
    Case("a blank mode is any", {MODE: " "}, {"kind": DeviceKind.GPU}),
    Case("mode mig", {MODE: "mig"}, {"kind": DeviceKind.MIG, "exclusive": True}),
    Case("mode mps", {MODE: "mps"}, {"kind": DeviceKind.GPU, "through_mps": True}),
    Case("of two modes the first of ours", {MODE: "mps,hami-core"}, {"through_mps": False}),
    Case("NUMA, as Go reads booleans", {NUMA: "T"}, {"same_numa": True}),
    Case("no NUMA", {NUMA: "false"}, {"same_numa": False}),
    Case("what Go does not read is false", {NUMA: "yes"}, {"same_numa": False}),
    Case(
        "policy numa, which only prefers",
        {POLICY: "numa"},
        {"same_numa": False},
        (f"warning policyDropped {at(POLICY)}",),
    ),
    Case(
        "policy numa beside what requires a node",
        {POLICY: "numa", NUMA: "true"},
        {"same_numa": True},
        (f"warning policyDropped {at(POLICY)}",),
    ),
    Case(
        "policy mutex wants it all",
        {POLICY: "mutex"},
        {"exclusive": True, "memory": None},
        (f"warning wholeDevice {COUNT}",),
    ),
    Case(
        "policy spread has no form",
        {POLICY: "spread"},
        {"exclusive": False},
        (f"warning policyDropped {at(POLICY)}",),
    ),
    Case(
        "each dropped policy is told",
        {POLICY: "binpack, numa, nonsense"},
        {"same_numa": False},
        (f"warning policyDropped {at(POLICY)}",) * 3,
    ),
    Case(
        "policies of the node",
        {NODE_POLICY: "binpack"},
        {},
        (f"warning policyDropped {at(NODE_POLICY)}",),
    ),
    Case(
        "scoring weights",
        {WEIGHTS: "slot=1,core=1,memory=3"},
        {},
        (f"warning policyDropped {at(WEIGHTS)}",),
    ),
    Case("blank policies say nothing", {POLICY: "", NODE_POLICY: " ", WEIGHTS: ""}, {}),
)


@pytest.mark.parametrize("case", WISHES, ids=lambda case: case.name)
def test_requests(case: Case) -> None:
    got = translated(case.annotations, mem=10)

    (intent,) = got.intents
    assert case.want == {field: getattr(intent, field) for field in case.want}
    assert case.findings == tuple(finding_texts(got.findings))


def test_mutex_on_what_is_exclusive_anyway_loses_nothing() -> None:
    assert finding_texts(translated({POLICY: "mutex"}).findings) == []


REFUSALS = (
    Case("only commas match nothing", {TYPE: ",,"}, {}, (f"error emptyDeviceList {at(TYPE)}",)),
    Case("no UUID matches only commas", {UUID: " , "}, {}, (f"error emptyDeviceList {at(UUID)}",)),
    Case("a mode that no card has", {MODE: "vfio"}, {}, (f"error unknownMode {at(MODE)}",)),
)


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refused(case: Case) -> None:
    assert case.findings == tuple(finding_texts(translated(case.annotations, mem=10).findings))


def test_annotations_of_a_pod_that_asks_no_gpu_do_not_matter() -> None:
    pod = msgspec.structs.replace(legacy_view(gpus(0)), annotations={MODE: "vfio"})

    assert finding_texts(translate(pod).findings) == []


class Slice(NamedTuple):
    name: str
    amounts: dict[str, int]
    want: str | None
    findings: tuple[str, ...] = ()


LIMITS = "spec.containers[0].resources.limits"

MIG = (
    Slice("memory chooses the profile", {"mem": 8000}, "8000Mi"),
    Slice(
        "cores come with the profile",
        {"mem": 8000, "cores": 30},
        "8000Mi",
        (f"warning policyDropped {LIMITS}[nvidia.com/gpucores]",),
    ),
    Slice(
        "without memory there is nothing to choose by",
        {},
        None,
        (f"error memoryAmountRequired {LIMITS}[nvidia.com/gpu]",),
    ),
    Slice("a percentage is of a card that the driver publishes", {"pct": 50}, "None"),
)


@pytest.mark.parametrize("case", MIG, ids=lambda case: case.name)
def test_mig(case: Slice) -> None:
    got = translated({MODE: "mig"}, **case.amounts)

    assert case.want == next((str(intent.memory) for intent in got.intents), None)
    assert case.findings == tuple(finding_texts(got.findings))
