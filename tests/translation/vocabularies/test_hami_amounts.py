"""HAMi's amounts: the defaulting algorithm in its order, and the refused amounts.

Source of the rows: HAMi v2.10, MutateAdmission, defaultExclusiveCoreIfNeeded and
GenerateResourceRequests.
"""

from typing import NamedTuple

import msgspec
import pytest

from testing.builders import container, finding_texts, gpus, legacy_view
from testing.documents import Document
from translation.model.intents import Intent
from translation.vocabularies.hami.translate import translate

LIMITS = "spec.containers[0].resources.limits"
MEM = f"{LIMITS}[nvidia.com/gpumem]"
PCT = f"{LIMITS}[nvidia.com/gpumem-percentage]"
CORES = f"{LIMITS}[nvidia.com/gpucores]"


class Share(msgspec.Struct, frozen=True):
    """The share of one intent on each of its GPUs; memory None is all of it."""

    count: int = 1
    cores: int = 0
    memory: str | None = None
    percent: int | None = None
    exclusive: bool = False


WHOLE = Share(cores=100, exclusive=True)


def share(intent: Intent) -> Share:
    memory = None if intent.memory is None else str(intent.memory)
    return Share(
        intent.count, intent.cores_percent or 0, memory, intent.memory_percent, intent.exclusive
    )


class Case(NamedTuple):
    name: str
    container: Document
    want: Share | None
    findings: tuple[str, ...] = ()


DEFAULTS = (
    Case("all three amounts", gpus(1, mem=3000, cores=30), Share(1, 30, "3000Mi")),
    Case("count alone is exclusive", gpus(2), Share(2, 100, exclusive=True)),
    Case("count and memory leave the cores uncapped", gpus(1, mem=3000), Share(1, 0, "3000Mi")),
    Case("memory alone asks one GPU", gpus(mem=3000), Share(1, 0, "3000Mi")),
    Case("cores alone ask one GPU and all its memory", gpus(cores=30), Share(1, 30)),
    Case("zero cores alone ask one GPU, uncapped", gpus(cores=0), Share(1, 0)),
    Case("a percentage alone asks one GPU", gpus(pct=50), Share(1, 0, None, 50)),
    Case("100 percent of memory without cores is exclusive", gpus(1, pct=100), WHOLE),
    Case("100 percent of memory and 30 of cores", gpus(1, pct=100, cores=30), Share(1, 30)),
    Case("all cores and all memory are exclusive", gpus(1, cores=100), WHOLE),
    Case("all cores and part of the memory", gpus(1, mem=10, cores=100), Share(1, 100, "10Mi")),
    Case("zero memory is all memory, and not exclusive", gpus(1, mem=0), Share(1, 0)),
    Case("zero percent is all memory, and not exclusive", gpus(1, pct=0), Share(1, 0)),
    Case("zero memory alone asks one GPU", gpus(mem=0), Share(1, 0)),
    Case("memory beats a percentage", gpus(1, mem=10, pct=50), Share(1, 0, "10Mi")),
    Case("zero memory does not", gpus(1, mem=0, pct=50), Share(1, 0, None, 50)),
    Case(
        "100 percent takes all cores, though the memory in MiB beats it",
        gpus(1, mem=3000, pct=100),
        Share(1, 100, "3000Mi"),
    ),
    Case("99 percent does not", gpus(1, mem=3000, pct=99), Share(1, 0, "3000Mi")),
    Case("zero memory and 100 percent are exclusive", gpus(1, mem=0, pct=100), WHOLE),
    Case("amounts are per GPU, not divided", gpus(4, mem=3000, cores=30), Share(4, 30, "3000Mi")),
    Case("5k is 5000 MiB", gpus(1, mem="5k"), Share(1, 0, "5000Mi")),
    Case("2e3 is 2000 MiB", gpus(1, mem="2e3"), Share(1, 0, "2000Mi")),
    Case("8Ki is 8192 MiB, as HAMi reads it", gpus(1, mem="8Ki"), Share(1, 0, "8Gi")),
    Case(
        "cores above 100 are all cores",
        gpus(1, mem=10, cores=150),
        Share(1, 100, "10Mi"),
        (f"warning clamped {CORES}",),
    ),
)

REFUSALS = (
    Case("bytes where MiB are counted", gpus(1, mem="8Gi"), None, (f"error wrongUnit {MEM}",)),
    Case("part of a MiB", gpus(1, mem="1.5"), None, (f"error notAnInteger {MEM}",)),
    Case("bytes with a fraction", gpus(1, mem="1.5Gi"), None, (f"error wrongUnit {MEM}",)),
    Case("decimal bytes", gpus(1, mem="8G"), None, (f"error wrongUnit {MEM}",)),
    Case("negative memory", gpus(1, mem=-1), None, (f"error negative {MEM}",)),
    Case("101 percent", gpus(1, pct=101), None, (f"error outOfRange {PCT}",)),
    Case("minus one percent", gpus(1, pct=-1), None, (f"error negative {PCT}",)),
    Case("half a percent", gpus(1, pct="500m"), None, (f"error notAnInteger {PCT}",)),
    Case("negative cores", gpus(1, cores=-1), None, (f"error negative {CORES}",)),
    Case(
        "half a GPU", gpus("500m", mem=1), None, (f"error notAnInteger {LIMITS}[nvidia.com/gpu]",)
    ),
    Case(
        "two faults are both told",
        gpus(1, mem="8Gi", pct=101),
        None,
        (f"error wrongUnit {MEM}", f"error outOfRange {PCT}"),
    ),
)

NO_DEVICE = (
    Case("zero GPUs", gpus(0), None),
    Case("zero GPUs, with memory", gpus(0, mem=3000), None, (f"warning noDeviceRequested {MEM}",)),
    Case(
        "a priority without a GPU",
        gpus(priority=1),
        None,
        (f"warning noDeviceRequested {LIMITS}[nvidia.com/priority]",),
    ),
    Case("no key of ours", container(), None),
)


@pytest.mark.parametrize("case", DEFAULTS + REFUSALS + NO_DEVICE, ids=lambda case: case.name)
def test_translate(case: Case) -> None:
    got = translate(legacy_view(case.container))

    assert case.want == next(map(share, got.intents), None)
    assert case.findings == tuple(finding_texts(got.findings))


@pytest.mark.parametrize("amount", ["0", "1", "7"])
def test_priority_becomes_a_variable(amount: str) -> None:
    got = translate(legacy_view(gpus(1, mem=10, priority=amount)))

    assert [("main", "CUDA_TASK_PRIORITY", amount)] == [
        (variable.container, variable.name, variable.value) for variable in got.variables
    ]


def test_memory_in_bytes_is_answered_with_the_count_to_write() -> None:
    (fault,) = translate(legacy_view(gpus(1, mem="8Gi"))).findings

    assert fault.fix == "write 8192 for 8Gi"


@pytest.mark.parametrize(("amount", "units"), [("8G", 7630), ("8589934592", 8192)])
def test_decimal_bytes_are_answered_with_the_count_to_write(amount: str, units: int) -> None:
    (fault,) = translate(legacy_view(gpus(1, mem=amount))).findings

    assert fault.fix == f"write {units} for {amount}"


def test_a_part_of_one_is_answered_with_the_percentage() -> None:
    (fault,) = translate(legacy_view(gpus(1, cores="0.3"))).findings

    assert fault.fix == "write 30 for 300m of a GPU"


def privileged(container_: Document) -> Document:
    return container_ | {"securityContext": {"privileged": True}}


PRIVILEGED = (
    Case("beside its own share", privileged(gpus(1, mem=10)), Share(1, 0, "10Mi")),
    Case("without any device", privileged(container()), None),
)


@pytest.mark.parametrize("case", PRIVILEGED, ids=lambda case: case.name)
def test_privileged(case: Case) -> None:
    got = translate(legacy_view(case.container))

    refused = [f"error privilegedShare {'spec.containers[0].securityContext.privileged'}"]
    assert (refused if case.want else []) == finding_texts(got.findings)


def test_a_privileged_init_container_sees_the_share_of_another() -> None:
    got = translate(legacy_view(gpus(1, mem=10), init=(privileged(container("setup")),)))

    assert finding_texts(got.findings) == [
        "error privilegedShare spec.initContainers[0].securityContext.privileged"
    ]
