"""The device plugin's keys: the request of each, and refusals or warnings."""

from typing import NamedTuple

import msgspec
import pytest

from findings.finding import Finding
from testing.builders import container, finding_texts, gpus, legacy_view, limits
from testing.documents import Document
from translation.model.intents import DeviceKind, Intent, Translation
from translation.vocabularies.nvidia import mig_profile, translate

LIMITS = "spec.containers[0].resources.limits"


class IntentFields(msgspec.Struct, frozen=True):
    """The fields of an intent that this vocabulary sets."""

    container: str
    kind: DeviceKind
    count: int
    exclusive: bool = False
    replica: bool = False
    mig_profile: str | None = None


def intent_fields(intent: Intent) -> IntentFields:
    return IntentFields(
        intent.container,
        intent.kind,
        intent.count,
        intent.exclusive,
        intent.replica,
        intent.filter.mig_profile,
    )


def whole(count: int, name: str = "main") -> IntentFields:
    return IntentFields(name, DeviceKind.GPU, count, exclusive=True)


def replica(name: str = "main") -> IntentFields:
    return IntentFields(name, DeviceKind.GPU, 1, replica=True)


def mig(profile: str, count: int = 1, name: str = "main") -> IntentFields:
    return IntentFields(name, DeviceKind.MIG, count, exclusive=True, mig_profile=profile)


class Case(NamedTuple):
    name: str
    containers: tuple[Document, ...]
    want: tuple[IntentFields, ...] = ()
    findings: tuple[str, ...] = ()


WISHES = (
    Case("one GPU is a whole one", (gpus(1),), (whole(1),)),
    Case("eight GPUs are eight whole ones", (gpus(8),), (whole(8),)),
    Case("k is a thousand, as for the API server", (gpus("1k"),), (whole(1000),)),
    Case("1.0 is one", (gpus("1.0"),), (whole(1),)),
    Case("no device is asked by zero", (gpus(0),)),
    Case("no MIG device is asked by zero", (gpus(mig_1g_5gb=0),)),
    Case("other resources are not ours", (container("main", limits(cpu=2, memory="1Gi")),)),
    Case("one replica", (gpus(shared=1),), (replica(),)),
    Case(
        "two replicas give no more than one",
        (gpus(shared=2),),
        (replica(),),
        (f"warning clamped {LIMITS}[nvidia.com/gpu.shared]",),
    ),
    Case("MIG devices of one profile", (gpus(mig_3g_20gb=2),), (mig("3g.20gb", 2),)),
    Case(
        "a GPU and a MIG device in one container are two wishes",
        (gpus(1, mig_1g_5gb=1),),
        (whole(1), mig("1g.5gb")),
    ),
    Case(
        "each container has wishes of its own, in the order of the pod",
        (gpus(1, name="b"), gpus(shared=1, name="a")),
        (whole(1, "b"), replica("a")),
    ),
)

REFUSALS = (
    Case(
        "half a GPU",
        (gpus("500m"),),
        findings=(f"error notAnInteger {LIMITS}[nvidia.com/gpu]",),
    ),
    Case("less than no GPU", (gpus(-1),), findings=(f"error negative {LIMITS}[nvidia.com/gpu]",)),
    Case("no replica at all", (gpus(shared=0),)),
    Case(
        "a MIG profile that is none",
        (gpus(mig_huge=1),),
        findings=(f"error unknownMigProfile {LIMITS}[nvidia.com/mig-huge]",),
    ),
    Case(
        "a replica of a MIG device, which no driver publishes",
        (gpus(mig_1g_5gb_shared=1),),
        findings=(f"error cannotExpress {LIMITS}[nvidia.com/mig-1g.5gb.shared]",),
    ),
    Case(
        "two faults are both told",
        (gpus("1.5", mig_huge=1),),
        findings=(
            f"error notAnInteger {LIMITS}[nvidia.com/gpu]",
            f"error unknownMigProfile {LIMITS}[nvidia.com/mig-huge]",
        ),
    ),
)


@pytest.mark.parametrize("case", WISHES + REFUSALS, ids=lambda case: case.name)
def test_translate(case: Case) -> None:
    got = translate(legacy_view(*case.containers))

    assert case.want == tuple(map(intent_fields, got.intents))
    assert case.findings == tuple(finding_texts(got.findings))


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("3g.20g", "write nvidia.com/mig-3g.20gb"),
        ("3g-20gb", "write nvidia.com/mig-3g.20gb"),
        ("1g10gb.me", "write nvidia.com/mig-1g.10gb.me"),
        ("1g.10GB", "write nvidia.com/mig-1g.10gb"),
        ("huge", "write a name such as nvidia.com/mig-1g.10gb or nvidia.com/mig-1g.10gb.me"),
    ],
)
def test_a_misspelt_profile_is_told_its_name(text: str, fix: str) -> None:
    containers = container("main", {f"nvidia.com/mig-{text}": 1})
    (finding,) = translate(legacy_view(containers)).findings

    assert finding.fix == fix


PROFILES = {
    "1g.5gb": "1g.5gb",
    "1g.10gb.me": "1g.10gb+me",
    "1g.24gb.gfx": "1g.24gb+gfx",
    "1g.24gb.me.all": "1g.24gb+me.all",
    "1g.24gb-me": "1g.24gb-me",
    "7g.141gb": "7g.141gb",
    "": None,
    "1g": None,
    "0g.5gb": None,
    "1g.5gb.": None,
    "1g.5gb+me": None,
    "1g.5gb.all": None,
    "1g.5gb\n": None,
    "1g.\u0665gb": None,
    '1g.5gb" || true': None,
}


@pytest.mark.parametrize(("text", "want"), PROFILES.items(), ids=map(repr, PROFILES))
def test_mig_profile(text: str, want: str | None) -> None:
    assert want == mig_profile(f"nvidia.com/mig-{text}")


def test_translate_blames_the_init_container() -> None:
    got: Translation = translate(legacy_view(gpus(1), init=(gpus("500m", name="prepare"),)))

    fault: Finding = got.findings[0]
    assert str(fault.path) == "spec.initContainers[0].resources.limits[nvidia.com/gpu]"
