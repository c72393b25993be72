"""Card types in annotations against the product names of published devices."""

import pytest

from testing.builders import (
    HAMI,
    NVIDIA,
    container,
    driver_slice,
    finding_texts,
    gpus,
    hami_gpu,
    mig_device,
    nvidia_gpu,
    pod,
    translation_outcome,
    translation_snapshot,
)
from testing.documents import Document
from translation.cluster.snapshot import TranslationSnapshot

CARDS = translation_snapshot(
    driver_slice(HAMI, hami_gpu(model="NVIDIA A100-SXM4-80GB"), hami_gpu(model="Tesla T4"))
)
USE, NO_USE = "nvidia.com/use-gputype", "nvidia.com/nouse-gputype"


def model_findings(
    annotations: dict[str, str], cluster: TranslationSnapshot = CARDS, containers: int = 1
) -> list[str]:
    """The findings about models of a pod with a share in each container."""
    shares = [gpus(1, mem=10, cores=10, name=f"c{index}") for index in range(containers)]
    outcome = translation_outcome(pod(*shares, annotations=annotations), cluster)
    return [
        text
        for text in finding_texts(outcome.findings)
        if text.split()[1] == "selectorMatchesNothing"
    ]


@pytest.mark.parametrize(
    ("annotations", "name"),
    [
        ({USE: "H100"}, USE),
        ({USE: "V100,L40"}, USE),
        ({NO_USE: "A100,T4"}, NO_USE),
        ({USE: "A100", NO_USE: "SXM4"}, USE),
    ],
    ids=["a model", "several models", "all models excluded", "one of both"],
)
def test_a_choice_that_no_published_card_meets_is_reported(
    annotations: dict[str, str], name: str
) -> None:
    path = f"metadata.annotations[{name}]"

    assert model_findings(annotations) == [f"warning selectorMatchesNothing {path}"]


@pytest.mark.parametrize(
    "annotations",
    [
        {USE: "a100"},
        {USE: "H100,t4"},
        {USE: "NVIDIA"},
        {USE: "NVIDIA-Tesla T4"},  # As HAMi registers a card whose product name has no vendor.
        {NO_USE: "A100"},
        {},
    ],
    ids=["a model", "one of several", "every card", "HAMi's name", "another excluded", "no choice"],
)
def test_a_choice_that_some_card_meets_needs_no_words(annotations: dict[str, str]) -> None:
    assert model_findings(annotations) == []


def test_what_nobody_has_published_is_not_validated() -> None:
    elsewhere = translation_snapshot(driver_slice(NVIDIA, nvidia_gpu()))

    assert model_findings({USE: "H100"}, translation_snapshot()) == []
    assert model_findings({USE: "H100"}, translation_snapshot(driver_slice(HAMI))) == []
    assert len(model_findings({USE: "H100"}, elsewhere)) <= 1


def test_it_is_said_once_of_a_pod_with_the_models_that_there_are() -> None:
    assert len(model_findings({USE: "H100"}, containers=3)) == 1
    document = pod(gpus(1, mem=10, cores=10), annotations={USE: "H100"})

    (message,) = [
        finding.message
        for finding in translation_outcome(document, CARDS).findings
        if finding.code == "selectorMatchesNothing"
    ]

    assert message.endswith('published are "nvidia a100-sxm4-80gb", "tesla t4"')


def _mig(profile: str) -> Document:
    return mig_device(profile=profile)


PARTITIONS = translation_snapshot(
    driver_slice(
        NVIDIA, *(mig_device(profile=name) for name in ("1g.10gb", "3g.40gb", "1g.10gb+me"))
    )
)


@pytest.mark.parametrize(
    ("profile", "nearest"),
    [("4g.40gb", "3g.40gb"), ("2g.20gb", "3g.40gb"), ("7g.80gb", "3g.40gb"), ("1g.5gb", "1g.10gb")],
)
def test_a_mig_profile_that_no_device_has_is_reported_with_those_that_there_are(
    profile: str, nearest: str
) -> None:
    key = f"nvidia.com/mig-{profile}"

    (finding,) = translation_outcome(pod(container("main", {key: 1})), PARTITIONS).findings

    assert (finding.code, finding.severity) == ("selectorMatchesNothing", "warning")
    assert finding.message == (
        f'no published device has MIG profile "{profile}", and the pod waits; '
        'published, with their largest number on one node, are "1g.10gb" (1), "1g.10gb+me" (1), "3g.40gb" (1)'
    )
    assert finding.fix == f"write nvidia.com/mig-{nearest}: 1"


@pytest.mark.parametrize(
    ("profile", "count", "fix"),
    [
        ("2g.20gb", 1, "2g.24gb: 1"),
        ("2g.20gb", 2, "3g.40gb: 2"),
        ("4g.40gb", 2, "3g.40gb: 2"),
        ("2g.20gb", 3, "2g.24gb: 1, the most that one node has"),
        ("7g.80gb", 3, "3g.40gb: 2, the most that one node has"),
    ],
    ids=["of one", "a larger one", "as much memory", "too many of every", "larger than every"],
)
def test_the_mig_profile_to_write_has_as_many_devices_on_one_node(
    profile: str, count: int, fix: str
) -> None:
    nodes = translation_snapshot(
        driver_slice(NVIDIA, *map(_mig, ("1g.10gb", "1g.10gb", "1g.10gb", "2g.24gb")), pool="a"),
        driver_slice(NVIDIA, _mig("3g.40gb"), pool="b"),
        driver_slice(NVIDIA, _mig("3g.40gb"), _mig("3g.40gb"), pool="c"),
    )
    document = pod(container("main", {f"nvidia.com/mig-{profile}": count}))

    (finding,) = translation_outcome(document, nodes).findings

    assert finding.fix == f"write nvidia.com/mig-{fix}"


@pytest.mark.parametrize("profile", ["1g.10gb", "1g.10gb.me", "3g.40gb"])
def test_a_published_mig_profile_needs_no_words(profile: str) -> None:
    document = pod(container("main", {f"nvidia.com/mig-{profile}": 1}))

    assert translation_outcome(document, PARTITIONS).findings == ()
    assert translation_outcome(document, CARDS).findings == ()


def test_an_exclusion_of_every_model_is_told_as_one() -> None:
    document = pod(gpus(1, mem=10, cores=10), annotations={NO_USE: "A100,T4"})

    (finding,) = [
        finding
        for finding in translation_outcome(document, CARDS).findings
        if finding.code == "selectorMatchesNothing"
    ]

    assert finding.message.startswith("every published model is excluded, and the pod waits")
    assert finding.fix == "exclude fewer models"
