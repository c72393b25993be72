"""The pods that each mode translates, and the precedence of a namespace's label."""

from typing import NamedTuple

import pytest

from testing.builders import (
    NAMESPACE,
    finding_texts,
    gpus,
    koordinator_container,
    pod,
    translation_of,
    translation_outcome,
    translation_snapshot,
)
from testing.documents import Document
from translation.cluster.snapshot import Mode, TranslationOptions, TranslationSnapshot
from translation.pipeline.translate import Translated, Untouched

OPT_IN = TranslationOptions(mode=Mode.OPT_IN)
IN = {"drawbridge.internal/translate": "true"}
OUT = {"drawbridge.internal/translate": "false"}
SELECTED = {"drawbridge.internal/translate": "selected"}
HAMI_OUT = {"hami.io/webhook": "ignore"}


def labelled(labels: dict[str, str]) -> TranslationSnapshot:
    return translation_snapshot(namespaces={NAMESPACE: labels})


class LeftAlone(NamedTuple):
    name: str
    pod: Document
    labels: dict[str, str]
    want: str


NOT_OPTED_IN = "info notOptedIn metadata.namespace"
LEFT_ALONE = (
    LeftAlone("without the label", pod(gpus(1)), {}, NOT_OPTED_IN),
    LeftAlone("with another value", pod(gpus(1)), {next(iter(IN)): "yes"}, NOT_OPTED_IN),
    LeftAlone(
        "a pod cannot opt in by itself, since the API server does not send it",
        pod(gpus(1), labels=IN),
        {},
        NOT_OPTED_IN,
    ),
    LeftAlone(
        "a pod opts out of a namespace that opted in",
        pod(gpus(1), labels=OUT),
        IN,
        "info optedOut metadata.labels",
    ),
    LeftAlone(
        "another converter has created the pod's claims",
        pod(gpus(1), labels={"hami.io/dra": "true"}),
        IN,
        "info alreadyConverted metadata.labels",
    ),
    LeftAlone(
        "no label brings a pod to a scheduler that its node name bypasses",
        pod(gpus(1), nodeName="node-1"),
        IN,
        "warning nodeNameSet spec.nodeName",
    ),
)


@pytest.mark.parametrize("case", LEFT_ALONE, ids=lambda case: case.name)
def test_left_alone_in_mode_opt_in(case: LeftAlone) -> None:
    outcome = translation_outcome(case.pod, labelled(case.labels), OPT_IN)

    assert isinstance(outcome, Untouched)
    assert [case.want] == finding_texts(outcome.findings)


def test_the_label_opts_in() -> None:
    outcome = translation_outcome(pod(gpus(1)), labelled(IN), OPT_IN)

    assert isinstance(outcome, Translated)
    assert outcome == translation_of(pod(gpus(1)))


@pytest.mark.parametrize("mode", Mode)
def test_a_selective_namespace_takes_part_with_the_pods_that_have_the_label(mode: Mode) -> None:
    snapshot, options = labelled(SELECTED), TranslationOptions(mode=mode)

    with_label = translation_outcome(pod(gpus(1), labels=IN), snapshot, options)
    without = translation_outcome(pod(gpus(1)), snapshot, options)
    out = translation_outcome(pod(gpus(1), labels=OUT), snapshot, options)

    assert isinstance(with_label, Translated)
    assert ["info notOptedIn metadata.labels"] == finding_texts(without.findings)
    assert ["info optedOut metadata.labels"] == finding_texts(out.findings)


@pytest.mark.parametrize("mode", Mode)
def test_in_a_selective_namespace_the_label_of_a_pod_beats_what_that_of_a_namespace_does(
    mode: Mode,
) -> None:
    document = pod(
        gpus(1, mem=1000), labels=IN | {"hami.io/webhook": "ignore"}, schedulerName="hami-scheduler"
    )

    outcome = translation_of(document, labelled(SELECTED), TranslationOptions(mode=mode))

    assert "default-scheduler" == outcome.scheduler_name
    (replaced,) = [entry for entry in outcome.findings if entry.code == "schedulerReplaced"]
    assert 'it has the label drawbridge.internal/translate: "true"' in replaced.message


@pytest.mark.parametrize("mode", Mode)
def test_no_label_opts_in_an_exempt_namespace(mode: Mode) -> None:
    options = TranslationOptions(mode=mode, exempt_namespaces=("other", NAMESPACE))

    outcome = translation_outcome(pod(gpus(1)), labelled(IN), options)

    assert isinstance(outcome, Untouched)
    assert finding_texts(outcome.findings) == ["info optedOut metadata.namespace"]


def test_a_pod_without_devices_gets_no_finding() -> None:
    assert translation_outcome(pod({"name": "a"}), labelled({}), OPT_IN) == Untouched()


@pytest.mark.parametrize("mode", [Mode.OPT_OUT, Mode.SHADOW])
def test_other_modes_evaluate_every_namespace(mode: Mode) -> None:
    options = TranslationOptions(mode=mode)

    assert isinstance(translation_outcome(pod(gpus(1)), labelled({}), options), Translated)


# --- what the label beats, in every mode ------------------------------------------------------------


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize(
    ("name", "scheduler"),
    [("HAMi's", "hami-scheduler"), ("Koordinator's", "koord-scheduler"), ("another", "mine")],
)
def test_the_label_beats_a_foreign_scheduler(name: str, scheduler: str, mode: Mode) -> None:
    document = pod(koordinator_container(gpu=100), schedulerName=scheduler)

    outcome = translation_of(document, labelled(IN), TranslationOptions(mode=mode))

    assert outcome.scheduler_name == "default-scheduler", name
    assert "warning schedulerReplaced spec.schedulerName" in finding_texts(outcome.findings)


@pytest.mark.parametrize(
    ("scheduler", "adopted", "is_native"),
    [
        ("", {}, True),
        ("default-scheduler", {}, True),
        ("hami-scheduler", {}, False),
        ("hami-scheduler", {"hami-scheduler": "default-scheduler"}, False),
    ],
)
def test_a_mapped_pod_that_has_to_leave_its_scheduler_is_translated(
    scheduler: str, adopted: dict[str, str], *, is_native: bool
) -> None:
    """HAMi's scheduler would find nothing for it outside of HAMi's nodes."""
    mapped = translation_snapshot(
        namespaces={NAMESPACE: IN}, extended_resources={"nvidia.com/gpu": "gpu.nvidia.com"}
    )
    document = pod(gpus(1), schedulerName=scheduler)

    outcome = translation_outcome(document, mapped, TranslationOptions(adopt_schedulers=adopted))

    assert is_native is isinstance(outcome, Untouched)
    assert not isinstance(outcome, Translated) or outcome.scheduler_name == "default-scheduler"


@pytest.mark.parametrize(
    ("scheduler", "adopted"),
    [("volcano", {"volcano": "volcano"}), ("mine", {"volcano": "mine"})],
    ids=["kept", "gets the pods of another"],
)
def test_a_mapped_pod_of_another_scheduler_that_the_settings_keep_is_translated(
    scheduler: str, adopted: dict[str, str]
) -> None:
    """Only kube-scheduler makes claims of names that classes map; others look for a device plugin's devices."""
    mapped = translation_snapshot(extended_resources={"nvidia.com/gpu": "gpu.nvidia.com"})
    document = pod(gpus(1), schedulerName=scheduler)

    outcome = translation_of(document, mapped, TranslationOptions(adopt_schedulers=adopted))

    assert outcome.claims
    assert outcome.scheduler_name is None


@pytest.mark.parametrize(
    ("owned", "scheduler", "is_native"),
    [
        ("gpu.nvidia.com", "", False),
        ("gpu.nvidia.com", "drawbridge-scheduler", False),
        ("gpu.example.com", "", True),
    ],
)
def test_a_mapped_pod_of_a_driver_of_the_bridge_is_translated(
    owned: str, scheduler: str, *, is_native: bool
) -> None:
    """kube-scheduler would make a claim for it, and the fence refuses that."""
    mapped = translation_snapshot(
        extended_resources={"nvidia.com/gpu": "gpu.nvidia.com"},
        class_drivers={"gpu.nvidia.com": frozenset({"gpu.nvidia.com"})},
        owned_drivers=frozenset({owned}),
    )

    outcome = translation_outcome(pod(gpus(1), schedulerName=scheduler), mapped)

    assert is_native is isinstance(outcome, Untouched)


def test_an_adopted_scheduler_is_the_settings_choice_also_with_the_label() -> None:
    adopting = TranslationOptions(adopt_schedulers={"volcano": "volcano", "kai": "mine"})
    outcomes = [
        translation_of(pod(gpus(1), schedulerName=name), labelled(IN), adopting)
        for name in ("volcano", "kai")
    ]

    assert [None, "mine"] == [outcome.scheduler_name for outcome in outcomes]
    assert [(), ()] == [outcome.findings for outcome in outcomes]


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize(
    ("of_pod", "of_namespace"), [(HAMI_OUT, {}), ({}, HAMI_OUT)], ids=["pod", "namespace"]
)
def test_the_label_beats_hamis_own(
    of_pod: dict[str, str], of_namespace: dict[str, str], mode: Mode
) -> None:
    document, options = pod(gpus(1, mem=1000), labels=of_pod), TranslationOptions(mode=mode)

    outcome = translation_of(document, labelled(of_namespace | IN), options)
    assert outcome.claims
    if mode is not Mode.OPT_IN:
        without = translation_outcome(document, labelled(of_namespace), options)
        assert ["info optedOut metadata.labels"] == finding_texts(without.findings)


@pytest.mark.parametrize(
    ("of_pod", "of_namespace"), [(HAMI_OUT, {}), ({}, HAMI_OUT)], ids=["pod", "namespace"]
)
def test_whole_devices_that_are_kept_from_hami_are_the_device_plugins(
    of_pod: dict[str, str], of_namespace: dict[str, str]
) -> None:
    """The setting has HAMi own the key, and HAMi's webhook leaves these pods alone."""
    snapshot = labelled(of_namespace)
    options = TranslationOptions(mode=Mode.OPT_OUT, default_gpu_owner="hami")

    outcome = translation_of(pod(gpus(1), labels=of_pod), snapshot, options)

    assert ("nvidia",) == tuple(name for name, _ in outcome.drivers)
    assert "hami" in dict(translation_of(pod(gpus(1)), labelled({}), options).drivers)


def test_no_fix_gives_a_pod_back_to_hamis_webhook() -> None:
    options = TranslationOptions(mode=Mode.OPT_OUT)

    outcome = translation_outcome(pod(gpus(1, mem=1000), labels=HAMI_OUT), labelled({}), options)

    (opted_out,) = outcome.findings
    assert (
        f"label namespace {NAMESPACE} drawbridge.internal/translate=true where it is to be translated: "
        "hami.io/webhook=ignore does not count there"
    ) == opted_out.fix
