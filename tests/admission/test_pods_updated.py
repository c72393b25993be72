"""Updates of pods: a second apply works, and the annotation is fixed."""

from typing import NamedTuple

import pytest

from admission.pods import Decision
from kube.names import REQUEST_ANNOTATION, SIGNATURE_ANNOTATION
from testing.builders import (
    admit,
    admit_update,
    container,
    finding_texts,
    gpus,
    limits,
    pod,
    with_changes,
    with_record,
)
from testing.documents import Document
from translation.cluster.snapshot import TolerationPolicy, TranslationOptions

AT = "metadata.annotations[drawbridge.internal/request]"
LIVE, _ = admit(pod(gpus(1, mem=1, cpu=1)))
PLAIN = pod(container())


def keys(requests: dict[str, str] | None = None, **amounts: object) -> Document:
    """The live pod, with keys put back into its container."""
    changed_pod = with_changes(LIVE)
    resources = changed_pod["spec"]["containers"][0]["resources"]
    resources["limits"] |= limits(**amounts)
    resources["requests"] |= limits(**amounts) if requests is None else requests
    return changed_pod


def test_a_second_apply_of_the_legacy_manifest_changes_nothing() -> None:
    after, answer = admit_update(keys(gpu=1, mem=1), LIVE)

    assert (answer.decision, after) == (Decision.STRIPPED, LIVE)


def test_it_works_without_requests() -> None:
    after, answer = admit_update(keys({}, gpu=1, mem=1), LIVE)

    assert (answer.decision, after) == (Decision.STRIPPED, LIVE)


def test_some_of_the_keys_are_stripped_alike() -> None:
    after, _ = admit_update(keys(mem="1.0"), LIVE)

    assert after == LIVE


ADOPTING = TranslationOptions(adopt_schedulers={"volcano": "default-scheduler"})


def test_an_adopted_pod_stays_with_its_scheduler() -> None:
    legacy = pod(gpus(1), schedulerName="volcano")
    live, _ = admit(legacy, None, ADOPTING)
    changed_pod = with_changes(
        live, spec__schedulerName="volcano", spec__containers=legacy["spec"]["containers"]
    )
    changed_pod["spec"]["containers"][0]["resources"]["claims"] = [
        {"name": "gpu", "request": "gpu"}
    ]

    after, answer = admit_update(changed_pod, live, ADOPTING)

    assert (Decision.STRIPPED, live) == (answer.decision, after)


def applied_again(manifest: Document, live: Document) -> Document:
    """Return the update that a client-side apply of a manifest sends: lists without a merge key are replaced."""
    update = with_changes(live)
    for container_, written in zip(
        update["spec"]["containers"], manifest["spec"]["containers"], strict=True
    ):
        resources = container_["resources"]
        if "limits" in written["resources"]:
            resources["limits"] = {**resources.get("limits", {}), **written["resources"]["limits"]}
        if "claims" in written["resources"]:
            resources["claims"] = written["resources"]["claims"]
    for field in ("schedulerName", "tolerations"):
        if field in manifest["spec"]:
            update["spec"][field] = manifest["spec"][field]
    return update


OWN_CLAIM = with_changes(
    pod(gpus(1, mem=1), resourceClaims=[{"name": "own", "resourceClaimName": "nic"}]),
    spec__containers__0__resources__claims=[{"name": "own"}],
)
TOLERATING = pod(gpus(1), tolerations=[{"key": "team", "operator": "Exists"}])
ALWAYS_TOLERATED = TranslationOptions(tolerations=TolerationPolicy.ALWAYS)
BRIDGE_TOLERATION = {"key": "bridge", "operator": "Exists", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("manifest", "options"),
    [
        pytest.param(OWN_CLAIM, TranslationOptions(), id="a claim of its own"),
        pytest.param(TOLERATING, ALWAYS_TOLERATED, id="a toleration of its own"),
    ],
)
def test_a_second_apply_leaves_the_lists_of_the_pod(
    manifest: Document, options: TranslationOptions
) -> None:
    live, _ = admit(manifest, None, options)

    after, answer = admit_update(applied_again(manifest, live), live, options)

    assert (answer.decision, after) == (Decision.STRIPPED, live)


KAI = TranslationOptions(adopt_schedulers={"kai-scheduler": "default-scheduler"})
OF_KAI = pod(
    container("main", {}), annotations={"gpu-memory": "4096"}, schedulerName="kai-scheduler"
)
TF = "tensor-fusion.ai/"
OF_TENSOR_FUSION = with_changes(
    pod(
        container("main", {}),
        annotations={f"{TF}vram-request": "4Gi", f"{TF}vram-limit": "4Gi"},
        labels={f"{TF}enabled": "true"},
        resourceClaims=[{"name": "own", "resourceClaimName": "nic"}],
    ),
    spec__containers__0__resources__claims=[{"name": "own"}],
)


@pytest.mark.parametrize(
    ("manifest", "options"),
    [
        pytest.param(OF_KAI, KAI, id="an adopted scheduler"),
        pytest.param(OF_TENSOR_FUSION, TranslationOptions(), id="a claim of its own"),
    ],
)
def test_a_second_apply_leaves_a_pod_whose_annotations_request_devices(
    manifest: Document, options: TranslationOptions
) -> None:
    live, translation = admit(manifest, None, options)

    after, answer = admit_update(applied_again(manifest, live), live, options)

    assert translation.decision is Decision.TRANSLATED
    assert (answer.decision, after) == (Decision.STRIPPED, live)
    assert admit_update(live, live, options)[1].decision is Decision.UNTOUCHED


def test_a_second_review_restores_no_more_than_the_first() -> None:
    """Without its keys, a container has dropped its claims for the API server to refuse."""
    manifest = pod(gpus(1, mem=1000, name="a"), gpus(1, mem=1000, name="b"))
    manifest["metadata"]["annotations"] = {"nvidia.com/use-gputype": "A100"}
    live, _ = admit(manifest)
    update = with_changes(live)
    del update["spec"]["containers"][0]["resources"]["claims"]
    update["spec"]["containers"][1] = manifest["spec"]["containers"][1]

    after, answer = admit_update(update, live)
    again, second_answer = admit_update(after, live)

    assert answer.decision is Decision.STRIPPED
    assert after["spec"]["containers"][1] == live["spec"]["containers"][1]
    assert (second_answer.decision, again) == (Decision.UNTOUCHED, after)


@pytest.mark.parametrize("resources", [{}, {"resources": None}, {"resources": {}}])
def test_a_pod_that_is_replaced_by_its_manifest_keeps_its_claims(resources: Document) -> None:
    live, _ = admit(OF_KAI, None, KAI)
    container_ = live["spec"]["containers"][0]
    container_["resources"] = {"claims": container_["resources"]["claims"]}
    update = with_changes(live)
    del update["spec"]["containers"][0]["resources"]
    update["spec"]["containers"][0] |= resources

    after, answer = admit_update(update, live, KAI)

    assert (Decision.STRIPPED, live) == (answer.decision, after)


def test_the_entries_that_a_second_apply_adds_come_after_those_of_the_pod() -> None:
    live, _ = admit(TOLERATING, None, ALWAYS_TOLERATED)
    added = {"key": "more", "operator": "Exists"}
    update = applied_again(TOLERATING, live)
    update["spec"]["tolerations"] = [added, *update["spec"]["tolerations"]]

    after, _ = admit_update(update, live, ALWAYS_TOLERATED)

    assert after["spec"]["tolerations"] == [*live["spec"]["tolerations"], added]


def test_a_claim_of_its_own_that_the_manifest_drops_is_for_the_api_server_to_refuse() -> None:
    live, _ = admit(OWN_CLAIM)
    update = applied_again(OWN_CLAIM, live)
    update["spec"]["containers"][0]["resources"]["claims"] = []

    after, _ = admit_update(update, live)

    (claim,) = after["spec"]["containers"][0]["resources"]["claims"]
    assert claim["name"] != "own"


@pytest.mark.parametrize("written", ["volcano", "default-scheduler"])
def test_a_second_apply_leaves_a_routed_pod_with_the_bridge(written: str) -> None:
    manifest = pod(
        gpus(1), schedulerName=written, tolerations=[{"key": "team", "operator": "Exists"}]
    )
    live, _ = admit(manifest, None, ADOPTING)
    live["spec"]["schedulerName"] = "drawbridge-scheduler"
    live["spec"]["tolerations"].append(BRIDGE_TOLERATION)

    after, answer = admit_update(applied_again(manifest, live), live, ADOPTING)

    assert (answer.decision, after) == (Decision.STRIPPED, live)


def test_another_scheduler_is_for_the_api_server_to_refuse() -> None:
    changed_pod = with_changes(keys(gpu=1, mem=1), spec__schedulerName="volcano")

    after, _ = admit_update(changed_pod, LIVE)

    assert after["spec"]["schedulerName"] == "volcano"


def signed(signature: str | None, document: Document = LIVE) -> Document:
    """A translated pod with a signature, or with none."""
    copy = with_changes(document)
    if signature is not None:
        copy["metadata"]["annotations"][SIGNATURE_ANNOTATION] = signature
    return copy


@pytest.mark.parametrize("new", ["of a copy", None])
@pytest.mark.parametrize("old", ["its own", None])
def test_the_signature_stays_as_it_was_settled(old: str | None, new: str | None) -> None:
    after, answer = admit_update(signed(new), signed(old))

    assert after == signed(old)
    changed = old != new
    assert answer.decision is (Decision.STRIPPED if changed else Decision.UNTOUCHED)


def test_a_second_apply_with_a_signature_changes_nothing() -> None:
    again = signed("older", keys(gpu=1, mem=1))

    after, answer = admit_update(again, signed("its own"))

    assert (answer.decision, after) == (Decision.STRIPPED, signed("its own"))


class Case(NamedTuple):
    name: str
    pod: Document
    old: Document
    want: Decision
    expected_warnings: tuple[str, ...] = ()


WITHOUT = with_changes(LIVE, metadata={"name": "train"})
LIMITS = "spec.containers[0].resources.limits"

CASES = (
    Case(
        "a finalizer is added",
        with_changes(LIVE, metadata__finalizers=["x"]),
        LIVE,
        Decision.UNTOUCHED,
    ),
    Case("a pod that was never ours", PLAIN, PLAIN, Decision.UNTOUCHED),
    Case(
        "a pod that was left alone keeps its keys", pod(gpus(1)), pod(gpus(1)), Decision.UNTOUCHED
    ),
    Case(
        "another amount",
        keys(gpu=2),
        LIVE,
        Decision.REFUSED,
        (f"error translationRecordChanged {LIMITS}[nvidia.com/gpu]",),
    ),
    Case(
        "another amount in requests alone",
        keys(limits(2), gpu=1),
        LIVE,
        Decision.REFUSED,
        (f"error translationRecordChanged {LIMITS}[nvidia.com/gpu]",),
    ),
    Case(
        "another key",
        keys(cores=1),
        LIVE,
        Decision.REFUSED,
        (f"error translationRecordChanged {LIMITS}[nvidia.com/gpucores]",),
    ),
    Case(
        "every changed key is told",
        keys(gpu=2, mem=2),
        LIVE,
        Decision.REFUSED,
        (
            f"error translationRecordChanged {LIMITS}[nvidia.com/gpu]",
            f"error translationRecordChanged {LIMITS}[nvidia.com/gpumem]",
        ),
    ),
    Case(
        "the annotation is removed",
        WITHOUT,
        LIVE,
        Decision.REFUSED,
        (f"error translationRecordChanged {AT}",),
    ),
    Case(
        "the annotation is changed",
        with_record(LIVE, "{}"),
        LIVE,
        Decision.REFUSED,
        (f"error translationRecordChanged {AT}",),
    ),
    Case(
        "the annotation is added",
        with_record(PLAIN, LIVE["metadata"]["annotations"][REQUEST_ANNOTATION]),
        PLAIN,
        Decision.REFUSED,
        (f"error translationRecordForged {AT}",),
    ),
    Case(
        "a pod with a broken annotation goes on living",
        with_record(PLAIN, "{"),
        with_record(PLAIN, "{"),
        Decision.UNTOUCHED,
    ),
    Case(
        "and gets no keys",
        with_record(pod(gpus(1)), "{"),
        with_record(PLAIN, "{"),
        Decision.REFUSED,
        (f"error translationRecordMalformed {AT}",),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_updated(case: Case) -> None:
    after, answer = admit_update(case.pod, case.old)

    assert (case.want, case.expected_warnings) == (
        answer.decision,
        tuple(finding_texts(answer.findings)),
    )
    assert after == case.pod


BESIDE_A_NETWORK, _ = admit(
    pod(
        container("main", {"nvidia.com/gpu": 1, "aliyun/erdma": 1}),
        annotations={"k8s.v1.cni.cncf.io/networks": "other"},
    )
)


def test_a_key_that_stayed_with_its_plugin_keeps_no_update_from_the_pod() -> None:
    """A Job could not take its finalizer from such a pod, and never ended."""
    assert "aliyun/erdma" in BESIDE_A_NETWORK["spec"]["containers"][0]["resources"]["limits"]
    labelled = with_changes(BESIDE_A_NETWORK, metadata__labels={"app": "train"})

    after, answer = admit_update(labelled, BESIDE_A_NETWORK)

    assert (answer.decision, after) == (Decision.UNTOUCHED, labelled)


def test_beside_such_a_key_the_others_can_be_applied_again() -> None:
    again = with_changes(BESIDE_A_NETWORK)
    again["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "1"

    after, answer = admit_update(again, BESIDE_A_NETWORK)

    assert (answer.decision, after) == (Decision.STRIPPED, BESIDE_A_NETWORK)


def test_such_a_key_cannot_change() -> None:
    more = with_changes(BESIDE_A_NETWORK)
    for section in more["spec"]["containers"][0]["resources"].values():
        if "aliyun/erdma" in section:
            section["aliyun/erdma"] = "2"

    _, answer = admit_update(more, BESIDE_A_NETWORK)

    assert ["translationRecordChanged"] == [finding.code.value for finding in answer.findings]
