"""Pods that are not ours to translate, or that Kubernetes translates itself."""

from typing import NamedTuple

import pytest

from testing.builders import (
    NAMESPACE,
    container,
    finding_texts,
    gpus,
    koordinator_annotations,
    koordinator_container,
    pod,
    translation_outcome,
    translation_snapshot,
)
from testing.documents import Document
from translation.cluster.snapshot import TranslationOptions, TranslationSnapshot
from translation.pipeline.translate import Translated, Untouched


class Case(NamedTuple):
    name: str
    pod: Document
    want: tuple[str, ...] = ()
    snapshot: TranslationSnapshot = translation_snapshot()
    options: TranslationOptions = TranslationOptions()


def in_namespace(**labels: str) -> TranslationSnapshot:
    return translation_snapshot(
        namespaces={NAMESPACE: {key.replace("__", "/"): text for key, text in labels.items()}}
    )


OPTED_OUT = ("info optedOut metadata.labels",)
OUT = {"drawbridge.internal/translate": "false"}
HAMI_OUT = {"hami.io/webhook": "ignore"}

LABELS = (
    Case("nothing is asked", pod(container())),
    Case("the pod opts out", pod(gpus(1), labels=OUT), OPTED_OUT),
    Case(
        "its namespace opts out",
        pod(gpus(1)),
        OPTED_OUT,
        translation_snapshot(namespaces={NAMESPACE: OUT}),
    ),
    Case("a pod that opted out of HAMi", pod(gpus(mem=1), labels=HAMI_OUT), OPTED_OUT),
    Case(
        "a namespace that opted out of HAMi",
        pod(gpus(mem=1)),
        OPTED_OUT,
        translation_snapshot(namespaces={NAMESPACE: HAMI_OUT}),
    ),
    Case(
        "HAMi-DRA was here before",
        pod(gpus(1), labels={"hami.io/dra": "true"}),
        ("info alreadyConverted metadata.labels",),
    ),
    Case(
        "a mirror pod",
        pod(gpus(1), annotations={"kubernetes.io/config.mirror": "x"}),
        ("info optedOut metadata.annotations",),
    ),
    Case("an opt-out is told before what is wrong", pod(gpus("500m"), labels=OUT), OPTED_OUT),
    Case("zero devices", pod(gpus(0))),
    Case(
        "zero devices with annotations that make no sense",
        pod(gpus(0), annotations={"nvidia.com/vgpu-mode": "x"}),
    ),
)

NODE = ("warning nodeNameSet spec.nodeName",)
SCHEDULER = ("warning foreignScheduler spec.schedulerName",)

ELSEWHERE = (
    Case("bound to a node", pod(gpus(1), nodeName="node-1"), NODE),
    Case(
        "bound by a scheduler, as pods that run are",
        pod(gpus(1), nodeName="node-1")
        | {"status": {"conditions": [{"type": "PodScheduled", "status": "True"}]}},
        ("info nodeNameSet spec.nodeName",),
    ),
    Case("another scheduler", pod(gpus(1), schedulerName="volcano"), SCHEDULER),
    Case(
        "Koordinator's, which does not count claims",
        pod(koordinator_container(gpu=100), schedulerName="koord-scheduler"),
        SCHEDULER,
    ),
    Case(
        "bound by another scheduler is told once",
        pod(gpus(1), nodeName="n", schedulerName="volcano"),
        NODE,
    ),
    Case(
        "another scheduler than those adopted",
        pod(gpus(1), schedulerName="volcano"),
        SCHEDULER,
        translation_snapshot(),
        TranslationOptions(adopt_schedulers={"kai-scheduler": "default-scheduler"}),
    ),
)

ON_CLASS = translation_snapshot(
    extended_resources={"nvidia.com/gpu": "gpu.nvidia.com", "nvidia.com/gpu.shared": "shared"}
)


def passed(key: str, place: str = "containers[0]") -> tuple[str, ...]:
    return (f"info passedThrough spec.{place}.resources.limits[{key}]",)


PASSED = (
    Case("a mapped GPU", pod(gpus(2)), passed("nvidia.com/gpu"), ON_CLASS),
    Case(
        "mapped names of several containers",
        pod(gpus(1), gpus(shared=1, name="b")),
        passed("nvidia.com/gpu"),
        ON_CLASS,
    ),
    Case(
        "a mapped name of an init container",
        pod(container(), init=(gpus(1),)),
        passed("nvidia.com/gpu", "initContainers[0]"),
        ON_CLASS,
    ),
)


@pytest.mark.parametrize("case", LABELS + ELSEWHERE + PASSED, ids=lambda case: case.name)
def test_left_alone(case: Case) -> None:
    got = translation_outcome(case.pod, case.snapshot, case.options)

    assert isinstance(got, Untouched)
    assert case.want == tuple(finding_texts(got.findings))


def test_a_namespace_that_opts_out_is_named() -> None:
    got = translation_outcome(
        pod(gpus(1)), translation_snapshot(namespaces={NAMESPACE: OUT}), TranslationOptions()
    )

    assert f"=false of namespace {NAMESPACE}" in got.findings[0].message


PARTITION = "metadata.annotations[scheduling.koordinator.sh/gpu-partition-spec]"
ADOPTED = TranslationOptions(adopt_schedulers={"volcano": "drawbridge-scheduler", "kai": "kai"})

TRANSLATED = (
    Case("labels that say nothing", pod(gpus(1), labels={"drawbridge.internal/translate": "true"})),
    Case(
        "who opted out of HAMi did not opt out of the device plugin", pod(gpus(1), labels=HAMI_OUT)
    ),
    Case(
        "another namespace opts out",
        pod(gpus(1)),
        (),
        translation_snapshot(namespaces={"team-b": OUT}),
    ),
    Case("the default scheduler, by name", pod(gpus(1), schedulerName="default-scheduler")),
    Case("our scheduler", pod(gpus(1), schedulerName="drawbridge-scheduler")),
    Case(
        "our scheduler, by a name of its own",
        pod(gpus(1), schedulerName="gpu-scheduler"),
        (),
        translation_snapshot(bridge_scheduler="gpu-scheduler"),
    ),
    Case(
        "a scheduler that was adopted",
        pod(gpus(1), schedulerName="volcano"),
        (),
        translation_snapshot(),
        ADOPTED,
    ),
    Case(
        "so may Koordinator's be",
        pod(koordinator_container(gpu=100), schedulerName="koord-scheduler"),
        (),
        translation_snapshot(),
        TranslationOptions(adopt_schedulers={"koord-scheduler": "default-scheduler"}),
    ),
    Case("a name that no class maps", pod(gpus(mig_1g_5gb=1)), (), ON_CLASS),
    Case("one name of two is mapped", pod(gpus(1), gpus(mig_1g_5gb=1, name="b")), (), ON_CLASS),
    Case("a companion key needs what a class cannot say", pod(gpus(1, mem=1)), (), ON_CLASS),
    Case(
        "so does one of Koordinator's",
        pod(gpus(1), annotations=koordinator_annotations(partition={})),
        (f"warning notPublishedByDriver {PARTITION}",),
        ON_CLASS,
    ),
    Case(
        "so does a hint",
        pod(gpus(1), annotations=koordinator_annotations(hint={"gpu": {}})),
        (),
        ON_CLASS,
    ),
    Case(
        "so does an annotation",
        pod(gpus(1), annotations={"nvidia.com/use-gputype": "A100"}),
        (),
        ON_CLASS,
    ),
)


@pytest.mark.parametrize("case", TRANSLATED, ids=lambda case: case.name)
def test_translated(case: Case) -> None:
    got = translation_outcome(case.pod, case.snapshot, case.options)

    assert isinstance(got, Translated)
    assert case.want == tuple(finding_texts(got.findings))


@pytest.mark.parametrize(
    ("scheduler", "want"),
    [("volcano", "drawbridge-scheduler"), ("kai", None), ("default-scheduler", None)],
)
def test_who_schedules_it(scheduler: str, want: str | None) -> None:
    got = translation_outcome(pod(gpus(1), schedulerName=scheduler), None, ADOPTED)

    assert isinstance(got, Translated)
    assert want == got.scheduler_name


def test_half_a_mapped_device_is_refused_in_the_words_of_the_api_server() -> None:
    got = translation_outcome(pod(gpus("500m")), ON_CLASS)

    assert finding_texts(got.findings) == [
        "error notAnInteger spec.containers[0].resources.limits[nvidia.com/gpu]"
    ]
