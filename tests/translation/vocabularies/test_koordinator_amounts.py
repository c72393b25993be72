"""Koordinator's amounts: the legal sets, sums over containers, totals divided by the count.

Source of the rows: koordinator-sh/koordinator, pkg/scheduler/plugins/deviceshare/utils.go and
devicehandler_gpu.go, pkg/webhook/pod/mutating/device_resource_spec.go.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import pytest

from testing.builders import (
    container,
    finding_texts,
    koordinator_annotations,
    koordinator_container,
    pod,
    pod_view,
)
from testing.documents import Document
from translation.model.intents import DeviceKind, Intent, LegacyPod
from translation.reading.legacy_pod import legacy_pod
from translation.vocabularies.koordinator.translate import translate

LIMITS = "spec.containers[0].resources.limits"
JOINT = koordinator_annotations(joint={"deviceTypes": ["gpu", "rdma"]})


class Part(msgspec.Struct, frozen=True):
    """The share of one intent on each of its devices; memory None is all of it."""

    count: int = 1
    cores: int = 0
    memory: str | None = None
    percent: int | None = None
    exclusive: bool = False
    kind: DeviceKind = DeviceKind.GPU


def part(intent: Intent) -> Part:
    return Part(
        intent.count,
        intent.cores_percent or 0,
        None if intent.memory is None else str(intent.memory),
        intent.memory_percent,
        intent.exclusive,
        intent.kind,
    )


def whole(count: int) -> Part:
    return Part(count, 100, exclusive=True)


def legacy(*containers: Document, init: Sequence[Document] = (), **metadata: Any) -> LegacyPod:
    return legacy_pod(pod_view(pod(*containers, init=init, **metadata)))


class Case(NamedTuple):
    name: str
    container: Document
    want: Part | None
    findings: tuple[str, ...] = ()


def fault(code: str, key: str) -> tuple[str, ...]:
    return (f"error {code} {LIMITS}[{key}]",)


K = "koordinator.sh"
SMALL = (f"warning wrongUnit {LIMITS}[{K}/gpu-memory]",)

SETS = (
    Case("nvidia", koordinator_container(nvidia=2), whole(2)),
    Case("amd", koordinator_container(amd=1, rdma=1), None, fault("cannotExpress", "amd.com/gpu")),
    Case("dcu", koordinator_container(dcu=1, rdma=1), None, fault("cannotExpress", "dcu.com/gpu")),
    Case("gpu", koordinator_container(gpu=50), Part(1, 50, percent=50)),
    Case("memory", koordinator_container(memory="8Gi"), Part(1, 0, "8Gi")),
    Case("ratio", koordinator_container(ratio=30), Part(1, 0, percent=30)),
    Case("core and memory", koordinator_container(core=30, memory="8Gi"), Part(1, 30, "8Gi")),
    Case("core and ratio", koordinator_container(core=30, ratio=20), Part(1, 30, percent=20)),
    Case(
        "npu core and ratio",
        koordinator_container(npu_core=1, ratio=20),
        None,
        fault("cannotExpress", "huawei.com/npu-core"),
    ),
    Case("shared and memory", koordinator_container(shared=2, memory="8Gi"), Part(2, 0, "4Gi")),
    Case("shared and ratio", koordinator_container(shared=2, ratio=100), Part(2, 0, percent=50)),
    Case(
        "shared, core and memory",
        koordinator_container(shared=2, core=100, memory="4Gi"),
        Part(2, 50, "2Gi"),
    ),
    Case(
        "shared, core and ratio",
        koordinator_container(shared=2, core=100, ratio=50),
        Part(2, 50, percent=25),
    ),
    Case(
        "shared, npu core, npu cpu and memory",
        koordinator_container(shared=1, npu_core=1, npu_cpu=1, memory="8Gi"),
        None,
        (
            *fault("cannotExpress", "huawei.com/npu-core"),
            *fault("cannotExpress", "huawei.com/npu-cpu"),
        ),
    ),
    Case(
        "shared, npu core, npu cpu, npu dvpp and memory",
        koordinator_container(shared=1, npu_core=1, npu_cpu=1, npu_dvpp=100, memory="8Gi"),
        None,
        tuple(
            line
            for key in ("core", "cpu", "dvpp")
            for line in fault("cannotExpress", f"huawei.com/npu-{key}")
        ),
    ),
    Case(
        "fpga", koordinator_container(fpga=100), Part(1, 100, exclusive=True, kind=DeviceKind.FPGA)
    ),
    Case("rdma", koordinator_container(rdma=1), Part(1, 1, kind=DeviceKind.NIC)),
)
"""The seventeen that the scheduler takes; those with other vendors' keys are answered."""

OTHER_SETS = (
    Case(
        "core alone",
        koordinator_container(core=50),
        None,
        fault("invalidCombination", f"{K}/gpu-core"),
    ),
    Case(
        "shared alone",
        koordinator_container(shared=1),
        None,
        fault("invalidCombination", f"{K}/gpu.shared"),
    ),
    Case(
        "shared and core",
        koordinator_container(shared=1, core=50),
        None,
        fault("invalidCombination", f"{K}/gpu-core"),
    ),
    Case(
        "memory twice",
        koordinator_container(memory="8Gi", ratio=50),
        None,
        fault("invalidCombination", f"{K}/gpu-memory"),
    ),
    Case(
        "whole GPUs and shares",
        koordinator_container(nvidia=1, ratio=50),
        None,
        fault("invalidCombination", "nvidia.com/gpu"),
    ),
    Case(
        "the deprecated spelling beside the new one",
        koordinator_container(gpu=50, core=50),
        None,
        fault("invalidCombination", f"{K}/gpu"),
    ),
    Case(
        "the deprecated spelling beside a number of GPUs",
        koordinator_container(gpu=100, shared=2),
        Part(count=2, cores=50, percent=50),
    ),
)

COUNTS = (
    Case("100 percent of both is exclusive", koordinator_container(gpu=100), whole(1)),
    Case("200 percent are two GPUs", koordinator_container(gpu=200), whole(2)),
    Case("so in the new spelling", koordinator_container(core=200, ratio=200), whole(2)),
    Case("a whole memory leaves nothing to others", koordinator_container(ratio=100), whole(1)),
    Case(
        "a whole memory and half the cores", koordinator_container(core=50, ratio=100), Part(1, 50)
    ),
    Case(
        "memory in bytes is a share, however large",
        koordinator_container(core=100, memory="80Gi"),
        Part(1, 100, "80Gi"),
    ),
    Case(
        "200 percent of cores tell two GPUs",
        koordinator_container(core=200, memory="8Gi"),
        Part(2, 100, "4Gi"),
    ),
    Case(
        "bytes are divided without a rest",
        koordinator_container(shared=2, memory=5),
        Part(2, 0, "2"),
        SMALL,
    ),
    Case("zero cores", koordinator_container(core=0, ratio=50), Part(1, 0, percent=50)),
    Case("nothing of anything", koordinator_container(gpu=0), None),
    Case("no NIC", koordinator_container(rdma=0), None),
    Case("part of a NIC", koordinator_container(rdma=50), Part(1, 50, kind=DeviceKind.NIC)),
    Case(
        "a whole NIC",
        koordinator_container(rdma=100),
        Part(1, 100, exclusive=True, kind=DeviceKind.NIC),
    ),
    Case(
        "three NICs",
        koordinator_container(rdma=300),
        Part(3, 100, exclusive=True, kind=DeviceKind.NIC),
    ),
)

FAULTS = (
    Case("150 percent", koordinator_container(gpu=150), None, fault("outOfRange", f"{K}/gpu")),
    Case(
        "150 percent of memory",
        koordinator_container(ratio=150),
        None,
        fault("outOfRange", f"{K}/gpu-memory-ratio"),
    ),
    Case(
        "150 percent of cores",
        koordinator_container(core=150, memory="1Gi"),
        None,
        fault("outOfRange", f"{K}/gpu-core"),
    ),
    Case(
        "cores that two GPUs cannot share",
        koordinator_container(shared=2, core=51, ratio=50),
        None,
        fault("outOfRange", f"{K}/gpu-core"),
    ),
    Case(
        "more than all of each",
        koordinator_container(shared=2, core=300, ratio=50),
        None,
        fault("outOfRange", f"{K}/gpu-core"),
    ),
    Case(
        "zero GPUs to share, which is no number",
        koordinator_container(shared=0, ratio=50),
        Part(percent=50),
        (f"info grantedWhereRejected {LIMITS}[{K}/gpu.shared]",),
    ),
    Case(
        "zero bytes beside a percentage, which is no amount",
        koordinator_container(memory=0, ratio=50),
        Part(percent=50),
    ),
    Case(
        "no cores beside all of the memory, which leaves nothing to others",
        koordinator_container(core=0, ratio=100),
        whole(1),
    ),
    Case(
        "no memory, which leaves cores alone",
        koordinator_container(core=50, memory=0),
        None,
        fault("invalidCombination", f"{K}/gpu-core"),
    ),
    Case(
        "less than a byte for each",
        koordinator_container(shared=2, memory=1),
        None,
        SMALL + fault("outOfRange", f"{K}/gpu-memory"),
    ),
    Case(
        "half a byte",
        koordinator_container(memory="500m"),
        None,
        fault("notAnInteger", f"{K}/gpu-memory"),
    ),
    Case(
        "a negative share",
        koordinator_container(ratio=-1),
        None,
        fault("negative", f"{K}/gpu-memory-ratio"),
    ),
    Case(
        "more than there are bytes",
        koordinator_container(memory="1e30"),
        None,
        fault("outOfRange", f"{K}/gpu-memory"),
    ),
    Case(
        "150 percent of a NIC",
        koordinator_container(rdma=150),
        None,
        fault("outOfRange", f"{K}/rdma"),
    ),
    Case(
        "150 percent of an FPGA",
        koordinator_container(fpga=150),
        None,
        fault("outOfRange", f"{K}/fpga"),
    ),
)


@pytest.mark.parametrize("case", SETS + OTHER_SETS + COUNTS + FAULTS, ids=lambda case: case.name)
def test_translate(case: Case) -> None:
    got = translate(legacy(case.container))

    assert case.want == (part(got.intents[0]) if got.intents else None)
    assert case.findings == tuple(finding_texts(got.findings))


def test_there_are_seventeen_sets() -> None:
    assert 17 == len(SETS)


class Sum(NamedTuple):
    name: str
    pod: LegacyPod
    want: Part


SUMS = (
    Sum(
        "half a GPU in each of two containers is half of two GPUs",
        legacy(koordinator_container("a", gpu=50), koordinator_container("b", gpu=50)),
        Part(2, 50, percent=50),
    ),
    Sum(
        "memory of two containers is divided by both their GPUs",
        legacy(koordinator_container("a", memory="8Gi"), koordinator_container("b", memory="2Gi")),
        Part(2, 0, "5Gi"),
    ),
    Sum(
        "both spellings add up",
        legacy(koordinator_container("a", gpu=50), koordinator_container("b", core=50, ratio=50)),
        Part(2, 50, percent=50),
    ),
    Sum(
        "an init container runs first, so the larger one counts",
        legacy(koordinator_container("a", gpu=50), init=[koordinator_container("b", gpu=80)]),
        Part(1, 80, percent=80),
    ),
    Sum(
        "a sidecar runs beside, and is no GPU more",
        legacy(
            koordinator_container("a", gpu=50),
            init=[koordinator_container("b", gpu=30) | {"restartPolicy": "Always"}],
        ),
        Part(1, 80, percent=80),
    ),
    Sum(
        "a sidecar alone is a GPU",
        legacy(
            container("a"), init=[koordinator_container("b", gpu=50) | {"restartPolicy": "Always"}]
        ),
        Part(1, 50, percent=50),
    ),
    Sum(
        "an init container runs beside the sidecars before it",
        legacy(
            koordinator_container("a", ratio=10),
            init=[
                koordinator_container("b", shared=1, ratio=40) | {"restartPolicy": "Always"},
                koordinator_container("c", shared=1, ratio=60),
            ],
        ),
        Part(2, 0, percent=50),
    ),
)


@pytest.mark.parametrize("case", SUMS, ids=lambda case: case.name)
def test_amounts_are_the_pods(case: Sum) -> None:
    (intent,) = translate(case.pod).intents

    assert case.want == part(intent)


USERS = (
    (
        "every app container",
        legacy(koordinator_container("a"), koordinator_container("b", gpu=50)),
        ("b", "a"),
    ),
    (
        "an init container that asks, too",
        legacy(
            koordinator_container("a", gpu=50),
            init=[koordinator_container("b", gpu=50), koordinator_container("c")],
        ),
        ("a", "b"),
    ),
    (
        "app containers use what only an init container asks for",
        legacy(koordinator_container("a"), init=[koordinator_container("b", gpu=50)]),
        ("b", "a"),
    ),
)


@pytest.mark.parametrize(("_name", "asking", "want"), USERS, ids=lambda value: str(value)[:60])
def test_who_uses_the_devices(_name: str, asking: LegacyPod, want: tuple[str, ...]) -> None:
    (intent,) = translate(asking).intents

    assert want == (intent.container, *intent.also)


def test_devices_of_several_kinds() -> None:
    got = translate(legacy(koordinator_container(nvidia=2, rdma=100, fpga=1), annotations=JOINT))

    assert ["gpu", "nic", "fpga"] == [intent.kind.value for intent in got.intents]


class Fix(NamedTuple):
    name: str
    pod: LegacyPod
    want: str


FIXES = (
    Fix(
        "two GPUs of cores beside the memory of one",
        legacy(koordinator_container(core=200, ratio=100)),
        f"write {K}/gpu-memory-ratio: 200 for 2 GPUs, or {K}/gpu-core: 100, in limits and requests",
    ),
    Fix(
        "a part of a GPU of cores, too",
        legacy(koordinator_container(core=150, ratio=50)),
        f"write {K}/gpu-memory-ratio: 200 for 2 GPUs, or {K}/gpu-core: 100, in limits and requests",
    ),
    Fix(
        "cores that the GPUs cannot divide",
        legacy(koordinator_container(core=301, ratio=400, shared=4)),
        "request 304, a multiple of 4",
    ),
    Fix(
        "a percentage that may be that of each GPU, with the memory beside it",
        legacy(koordinator_container(core=75, memory="30Gi", shared=2)),
        f"write {K}/gpu-core: 150 and {K}/gpu-memory: 60Gi for 75 percent and 30Gi of each GPU, or {K}/gpu-core: 76 "
        f"for 38 percent of each, beside which {K}/gpu-memory: 30Gi is 15Gi of each",
    ),
    Fix(
        "the same of the memory, in percent",
        legacy(koordinator_container(core=80, ratio=50, shared=4)),
        f"write {K}/gpu-memory-ratio: 200 and {K}/gpu-core: 320 for 50 percent and 80 percent of each GPU, or "
        f"{K}/gpu-memory-ratio: 52 for 13 percent of each, beside which {K}/gpu-core: 80 is 20 of each",
    ),
    Fix(
        "a multiple that is more than all of each",
        legacy(koordinator_container(core=301, ratio=300, shared=3)),
        "request at most 300",
    ),
    Fix(
        "more GPUs than a claim has",
        legacy(koordinator_container(core=100_000, ratio=50)),
        f"write {K}/gpu-core: 3200, {K}/gpu-memory-ratio: 3200 for 32 GPUs, or {K}/gpu-core: 100, "
        "in limits and requests",
    ),
    Fix(
        "a sum, which no container wrote",
        legacy(
            koordinator_container("a", core=150, ratio=100),
            koordinator_container("b", core=100, ratio=100),
        ),
        "request at most 200 in all of the pod's containers",
    ),
)


@pytest.mark.parametrize("case", FIXES, ids=lambda case: case.name)
def test_fixes(case: Fix) -> None:
    (finding,) = translate(case.pod).findings

    assert case.want == finding.fix
    if " of each GPU, or " in case.want:
        assert finding.corrections == ()


@pytest.mark.parametrize(
    ("percent", "fix"), [(1, "100 for one whole GPU"), (8, "800 for 8 whole GPUs"), (9, None)]
)
def test_so_few_percent_that_they_may_be_gpus(percent: int, fix: str | None) -> None:
    findings = translate(legacy(koordinator_container(gpu=percent))).findings

    assert [f"write {fix}"] * (fix is not None) == [finding.fix for finding in findings]
    assert all(finding.code == "wrongUnit" and not finding.is_error for finding in findings)
