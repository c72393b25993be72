"""The driver that serves a vocabulary's keys in a pod, by the requests and the devices."""

from collections.abc import Collection
from typing import NamedTuple

import msgspec
import pytest

from testing.builders import (
    EXAMPLE,
    HAMI,
    NVIDIA,
    admit,
    container,
    driver_slice,
    finding_codes,
    finding_texts,
    gpus,
    hami_gpu,
    in_partitions,
    koordinator_annotations,
    koordinator_container,
    mig_device,
    nvidia_gpu,
    pod,
    record_of,
    translation_of,
    translation_outcome,
    translation_snapshot,
)
from testing.documents import Document
from translation.cluster.snapshot import TranslationOptions, TranslationSnapshot
from translation.pipeline.translate import Untouched

OURS = "gpu.drawbridge.internal"


def published(*drivers: str) -> TranslationSnapshot:
    """Return a cluster with devices of these drivers, and without the classes of any other."""
    slices = {
        NVIDIA: driver_slice(NVIDIA, nvidia_gpu()),
        HAMI: driver_slice(HAMI, hami_gpu()),
        OURS: driver_slice(OURS, own_gpu()),
    }
    return translation_snapshot(
        *(slices[driver] for driver in drivers),
        classes=frozenset(drivers),
        publishes=frozenset(drivers),
    )


def own_gpu() -> Document:
    document = hami_gpu()
    document["attributes"]["type"] = {"string": "gpu"}
    return document


def cluster(
    *, classes: Collection[str] = (), once: Collection[str] = (), drivers: Collection[str] = ()
) -> TranslationSnapshot:
    return msgspec.structs.replace(
        published(*drivers),
        classes=frozenset({*classes, *drivers}),
        once_published={name: frozenset({name}) for name in once},
    )


def partitioned(*sizes: int) -> TranslationSnapshot:
    gpu = in_partitions(nvidia_gpu(), *sizes)
    return translation_snapshot(driver_slice(NVIDIA, gpu), driver_slice(HAMI, hami_gpu()))


UNKNOWN = translation_snapshot()
BARE = pod(gpus(2))
WITH_TYPE = pod(gpus(1), annotations={"nvidia.com/use-gputype": "A100"})
SHARE = pod(gpus(1, mem=3000))
JOINT = pod(
    koordinator_container(nvidia=1, rdma=100),
    annotations=koordinator_annotations(joint={"deviceTypes": ["gpu", "rdma"]}),
)
PARTITION = pod(koordinator_container(nvidia=2), annotations=koordinator_annotations(partition={}))
HINT = pod(
    koordinator_container(nvidia=2),
    annotations=koordinator_annotations(hint={"gpu": {"requiredTopologyScope": "Node"}}),
)
OWN_WHOLE = pod(koordinator_container(gpu=200))
OWN_SHARE = pod(koordinator_container(gpu=50))


class Case(NamedTuple):
    name: str
    pod: Document
    snapshot: TranslationSnapshot
    want: str
    options: TranslationOptions = TranslationOptions()


def fixed(**drivers: str) -> TranslationOptions:
    defaults = TranslationOptions().profiles
    return TranslationOptions(profiles={**defaults, **drivers}, fixed=frozenset(drivers))


def for_key(driver: str) -> TranslationOptions:
    return TranslationOptions(drivers={"nvidia.com/gpu": driver})


CASES = (
    Case("whole GPUs, nothing known", BARE, UNKNOWN, NVIDIA),
    Case("whole GPUs where only HAMi has devices", BARE, published(HAMI), HAMI),
    Case("whole GPUs where both have", BARE, published(HAMI, NVIDIA), NVIDIA),
    Case("whole GPUs where only our driver has devices", BARE, published(OURS), OURS),
    Case("whole GPUs where nobody has devices", BARE, published(), NVIDIA),
    Case("whole GPUs where only HAMi's class exists", BARE, cluster(classes=[HAMI]), HAMI),
    Case(
        "whole GPUs where NVIDIA's class has no devices, and HAMi's has",
        BARE,
        cluster(classes=[NVIDIA], drivers=[HAMI]),
        HAMI,
    ),
    Case(
        "whole GPUs where NVIDIA's driver once had devices and is upgraded now",
        BARE,
        cluster(classes=[NVIDIA], once=[NVIDIA], drivers=[HAMI]),
        NVIDIA,
    ),
    Case(
        "whole GPUs where NVIDIA's driver has MIG devices only",
        BARE,
        translation_snapshot(driver_slice(NVIDIA, mig_device()), driver_slice(HAMI, hami_gpu())),
        HAMI,
    ),
    Case(
        "whole GPUs beside MIG devices stay where MIG devices are",
        pod(gpus(1, mig_1g_10gb=1)),
        published(HAMI),
        NVIDIA,
    ),
    Case("whole GPUs of HAMi", WITH_TYPE, published(HAMI, NVIDIA), HAMI),
    Case("whole GPUs of HAMi where only NVIDIA has devices", WITH_TYPE, published(NVIDIA), NVIDIA),
    Case("shares, nothing known", SHARE, UNKNOWN, HAMI),
    Case("shares where NVIDIA's driver has whole GPUs", SHARE, published(NVIDIA), HAMI),
    Case("shares where our driver has them", SHARE, published(NVIDIA, OURS), OURS),
    Case(
        "shares of memory where NVIDIA's driver shares its GPUs",
        SHARE,
        translation_snapshot(driver_slice(NVIDIA, nvidia_gpu(shared=True))),
        NVIDIA,
    ),
    Case(
        "shares of cores, which it does not publish",
        pod(gpus(1, mem=3000, cores=30)),
        translation_snapshot(driver_slice(NVIDIA, nvidia_gpu(shared=True))),
        HAMI,
    ),
    Case("joint allocation, nothing known", JOINT, UNKNOWN, NVIDIA),
    Case("joint allocation where both have devices", JOINT, published(HAMI, NVIDIA), NVIDIA),
    Case("joint allocation where only HAMi has devices", JOINT, published(HAMI), HAMI),
    Case("a partition", PARTITION, partitioned(2), NVIDIA),
    Case("a hint about GPUs", HINT, published(HAMI, NVIDIA), NVIDIA),
    Case("Koordinator's own keys for whole GPUs", OWN_WHOLE, published(HAMI, NVIDIA), HAMI),
    Case("the same where only NVIDIA has devices", OWN_WHOLE, published(NVIDIA), NVIDIA),
    Case(
        "Koordinator's shares beside whole GPUs of NVIDIA", OWN_SHARE, published(NVIDIA, HAMI), HAMI
    ),
    Case(
        "a vocabulary's driver that is chosen", BARE, published(HAMI), NVIDIA, fixed(nvidia=NVIDIA)
    ),
    Case(
        "a chosen driver for Koordinator", JOINT, published(NVIDIA), HAMI, fixed(koordinator=HAMI)
    ),
    Case("a key's driver that is chosen", BARE, published(NVIDIA), HAMI, for_key(HAMI)),
    Case("a key's driver, whoever reads the key", JOINT, published(NVIDIA), HAMI, for_key(HAMI)),
    Case(
        "a key's driver precedes the vocabulary's",
        BARE,
        published(NVIDIA),
        EXAMPLE,
        msgspec.structs.replace(fixed(nvidia=NVIDIA), drivers={"nvidia.com/gpu": EXAMPLE}),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_driver_of_the_first_vocabulary(case: Case) -> None:
    translated = translation_outcome(case.pod, case.snapshot, case.options)

    record = getattr(translated, "record", None)
    assert record is not None, finding_texts(translated.findings)
    assert case.want == record.profiles[0].name


MAPPED = {"nvidia.com/gpu": NVIDIA}


def test_a_mapped_name_passes_through_where_its_driver_has_devices() -> None:
    snapshot = msgspec.structs.replace(published(NVIDIA, HAMI), extended_resources=MAPPED)

    assert isinstance(translation_outcome(BARE, snapshot), Untouched)


def test_a_mapped_name_is_translated_where_only_another_driver_has_devices() -> None:
    snapshot = msgspec.structs.replace(
        cluster(classes=[NVIDIA], drivers=[HAMI]), extended_resources=MAPPED
    )

    assert HAMI == translation_of(BARE, snapshot).record.profiles[0].name


def test_the_recorded_driver_stays_when_other_devices_come() -> None:
    translated, _ = admit(BARE, published(HAMI))

    again, answer = admit(translated, published(HAMI, NVIDIA))

    assert answer.allowed, finding_texts(answer.findings)
    assert HAMI == record_of(again)["profiles"][0]["name"]


def test_a_recorded_driver_that_is_no_candidate_is_rejected() -> None:
    translated, _ = admit(BARE, published(HAMI))

    _, answer = admit(translated, published(HAMI, NVIDIA), fixed(nvidia=NVIDIA))

    assert "error profileChanged" in finding_codes(answer.findings)


def test_two_drivers_for_the_keys_of_one_vocabulary_are_rejected() -> None:
    options = TranslationOptions(drivers={"nvidia.com/gpu": HAMI, "nvidia.com/mig-1g.10gb": NVIDIA})
    both = pod(container("a", {"nvidia.com/gpu": 1, "nvidia.com/mig-1g.10gb": 1}))

    got = translation_outcome(both, UNKNOWN, options).findings

    assert "error ambiguousOwner" in finding_codes(got)


def test_devices_without_a_driver_name_the_profile_that_is_missing() -> None:
    outcome = translation_outcome(pod(koordinator_container(fpga=100)))

    (finding,) = (entry for entry in outcome.findings if entry.is_error)
    assert finding.fix == (
        "name such devices under devices.fpga in the profile of a driver, and let that driver serve "
        "koordinator.sh/fpga"
    )
