"""Pods that come with our annotation: another round, printed output, and forgeries."""

from typing import Any, NamedTuple

import msgspec
import pytest

from admission.pods import Decision
from kube.names import REQUEST_ANNOTATION
from quotas.resource_quotas.scopes import Quota
from testing.builders import (
    HAMI,
    NAMESPACE,
    admit,
    container,
    driver_slice,
    finding_codes,
    finding_texts,
    gpus,
    hami_gpu,
    limits,
    pod,
    pod_view,
    record_of,
    translation_snapshot,
    with_changes,
    with_record,
)
from testing.documents import Document
from translation.cluster.snapshot import QuotaPolicy, TranslationOptions, TranslationSnapshot

AT = "metadata.annotations[drawbridge.internal/request]"
CLASSES = frozenset({HAMI, "gpu.nvidia.com", "mig.nvidia.com"})
BIG, SMALL = (
    translation_snapshot(driver_slice(HAMI, hami_gpu("80Gi")), classes=CLASSES),
    translation_snapshot(driver_slice(HAMI, hami_gpu("40Gi")), classes=CLASSES),
)

PODS = (
    ("a whole GPU", pod(gpus(1))),
    ("a share", pod(gpus(mem=1), annotations={"nvidia.com/use-gputype": 'A100" é'})),
    ("a percentage", pod(gpus(pct=50))),
    ("the same share twice", pod(gpus(mem=1, name="a"), gpus(mem=1, name="b"))),
    ("both vocabularies", pod(gpus(mem=1, mig_1g_5gb=1))),
    (
        "a borrowed driver",
        pod(gpus(mem=1, mig_1g_5gb=1), annotations={"nvidia.com/vgpu-mode": "mig"}),
    ),
    ("an init container", pod(gpus(2), init=(gpus(1, name="i"), gpus(3, name="j")))),
    ("an init container that uses two equal claims", pod(gpus(1), init=(gpus(2, name="z"),))),
    ("a sidecar", pod(gpus(2), init=(gpus(1, name="i", fields={"restartPolicy": "Always"}),))),
    ("no device after all", pod(gpus(0, mem=1))),
    ("a priority alone", pod(gpus(priority=1))),
    ("an adopted scheduler", pod(gpus(1), schedulerName="volcano")),
    (
        "a NIC that keeps its key beside a network of Multus",
        pod(
            container("main", {"nvidia.com/gpu": 1, "aliyun/erdma": 1}),
            annotations={"k8s.v1.cni.cncf.io/networks": "other"},
        ),
    ),
)
ADOPTING = TranslationOptions(adopt_schedulers={"volcano": "default-scheduler"})


@pytest.mark.parametrize(("name", "document"), PODS, ids=[name for name, _ in PODS])
def test_another_round_changes_nothing(name: str, document: Document) -> None:
    once, _ = admit(document, BIG, ADOPTING)

    _, answer = admit(once, BIG, ADOPTING)

    assert (answer.decision, answer.operations) == (Decision.ACCEPTED, ())


def test_names_used_twice_which_the_api_server_refuses_later_are_no_fault_of_ours() -> None:
    twice = pod(container("i"), container("a"), gpus(1, name="a"), init=(gpus(1, name="i"),))
    once, _ = admit(twice, BIG)

    _, answer = admit(once, BIG)

    assert answer.allowed


def test_what_is_published_by_now_decides_not_what_is_recorded() -> None:
    once, _ = admit(pod(gpus(pct=50)), BIG)

    again, answer = admit(once, SMALL)

    at_once, _ = admit(pod(gpus(pct=50)), SMALL)
    assert answer.decision is Decision.TRANSLATED
    assert again == at_once


def test_invented_facts_give_no_other_claims_than_the_keys() -> None:
    half, _ = admit(pod(gpus(pct=50)), BIG)
    invented, _ = admit(
        pod(gpus(pct=50)), translation_snapshot(driver_slice(HAMI, hami_gpu("1Ti")))
    )
    assert invented["spec"] != half["spec"]

    after, _ = admit(invented, BIG)

    assert after == half


def test_what_was_translated_stays_so_where_a_class_maps_its_keys_by_now() -> None:
    once, _ = admit(pod(gpus(1)))
    translation_snapshot_ = translation_snapshot(
        extended_resources={"nvidia.com/gpu": "gpu.nvidia.com"}
    )

    _, answer = admit(once, translation_snapshot_)

    assert (answer.decision, answer.operations) == (Decision.ACCEPTED, ())


# --- preflight checks -----------------------------------------------------------------------------


def labelled(document: Document, **labels: str) -> Document:
    return with_changes(
        document, metadata__labels={f"drawbridge.internal/{k}": v for k, v in labels.items()}
    )


WHOLE, _ = admit(pod(gpus(1)))
RECORD = WHOLE["metadata"]["annotations"][REQUEST_ANNOTATION]
ADOPTED, _ = admit(pod(gpus(1), schedulerName="volcano"), None, ADOPTING)
QUOTA = Quota(names=frozenset({"requests.nvidia.com/gpu"}))
COUNTING = translation_snapshot(quotas={NAMESPACE: {"gpus": QUOTA}}, classes=CLASSES)


class Checked(NamedTuple):
    name: str
    pod: Document
    decision: Decision
    want: tuple[str, ...]
    snapshot: TranslationSnapshot = translation_snapshot()
    options: TranslationOptions = TranslationOptions()


UNSIGNED = f"warning translationNotSigned {AT}"
CHECKED = (
    Checked(
        "a quota on a recorded key",
        WHOLE,
        Decision.REFUSED,
        (f"error quotaNotCounted {AT}",),
        COUNTING,
    ),
    Checked(
        "a quota on a recorded key, and only a warning is wanted",
        WHOLE,
        Decision.ACCEPTED,
        (f"warning quotaNotCounted {AT}",),
        COUNTING,
        TranslationOptions(quota=QuotaPolicy.WARN),
    ),
    Checked(
        "a quota on another key of the driver",
        admit(pod(gpus(mig_1g_5gb=1)))[0],
        Decision.REFUSED,
        (f"error quotaNotCounted {AT}",),
        translation_snapshot(
            quotas={
                NAMESPACE: {"gpus": Quota(names=frozenset({"requests.nvidia.com/mig-3g.20gb"}))}
            },
            classes=CLASSES,
        ),
    ),
    Checked(
        "a quota on whole GPUs, which never counted MIG devices",
        admit(pod(gpus(mig_1g_5gb=1)))[0],
        Decision.ACCEPTED,
        (),
        COUNTING,
    ),
    Checked(
        "a quota that counts the claim, where its class maps the keys",
        WHOLE,
        Decision.ACCEPTED,
        (),
        msgspec.structs.replace(COUNTING, extended_resources={"nvidia.com/gpu": "gpu.nvidia.com"}),
    ),
    Checked(
        "a pod that opts out",
        labelled(WHOLE, translate="false"),
        Decision.UNTOUCHED,
        ("info optedOut metadata.labels", UNSIGNED),
    ),
    Checked(
        "a namespace that opts out",
        WHOLE,
        Decision.UNTOUCHED,
        ("info optedOut metadata.labels", UNSIGNED),
        translation_snapshot(namespaces={NAMESPACE: {"drawbridge.internal/translate": "false"}}),
    ),
    Checked(
        "a foreign scheduler",
        with_changes(WHOLE, spec__schedulerName="volcano"),
        Decision.UNTOUCHED,
        ("warning foreignScheduler spec.schedulerName", UNSIGNED),
    ),
    Checked(
        "a node without a scheduler",
        with_changes(WHOLE, spec__nodeName="n"),
        Decision.UNTOUCHED,
        ("warning nodeNameSet spec.nodeName", UNSIGNED),
    ),
    Checked("a scheduler that adopts", ADOPTED, Decision.ACCEPTED, (), options=ADOPTING),
    Checked(
        "a scheduler that adopts under a name of its own",
        with_changes(WHOLE, spec__schedulerName="mine"),
        Decision.ACCEPTED,
        (),
        options=TranslationOptions(adopt_schedulers={"volcano": "mine"}),
    ),
    Checked(
        "a profile that is known and not in force",
        admit(pod(gpus(1)), None, TranslationOptions(profiles={"nvidia": "gpu.example.com"}))[0],
        Decision.REFUSED,
        (f"error profileChanged {AT}",),
    ),
    Checked(
        "another owner of the key",
        admit(pod(gpus(1)), None, TranslationOptions(default_gpu_owner="hami"))[0],
        Decision.REFUSED,
        (f"error profileChanged {AT}",),
    ),
    Checked(
        "a vocabulary that is not chosen",
        admit(pod(gpus(mem=1)))[0],
        Decision.REFUSED,
        (f"error translationRecordMalformed {AT}",),
        options=TranslationOptions(vocabularies=frozenset({"nvidia"})),
    ),
    Checked(
        "a recorded name that is no device key",
        with_record(
            WHOLE, RECORD.replace('"nvidia.com/gpu":"1"', '"cpu":"64","nvidia.com/gpu":"1"')
        ),
        Decision.REFUSED,
        (f"error translationRecordMalformed {AT}",),
    ),
    Checked(
        "facts that are not known by now",
        admit(pod(gpus(pct=50)), BIG)[0],
        Decision.REFUSED,
        (f"error memorySizesUnknown {AT}",),
        translation_snapshot(classes=CLASSES),
    ),
    Checked(
        "facts of a cluster, where none is known",
        admit(pod(gpus(pct=50)), BIG)[0],
        Decision.ACCEPTED,
        (),
    ),
)


@pytest.mark.parametrize("case", CHECKED, ids=lambda case: case.name)
def test_an_annotation_gives_nothing_that_its_keys_would_not_give(case: Checked) -> None:
    after, answer = admit(case.pod, case.snapshot, case.options)

    assert answer.decision is case.decision
    assert case.want == tuple(finding_texts(answer.findings))
    assert after == case.pod


def test_other_claims_beside_ours_do_not_matter() -> None:
    once, _ = admit(pod(gpus(1)))
    once["spec"]["resourceClaims"].insert(0, {"name": "nic", "resourceClaimName": "nic-1"})

    _, answer = admit(once)

    assert answer.decision is Decision.ACCEPTED


def test_another_name_for_the_claim_does_not_matter() -> None:
    once, _ = admit(pod(gpus(1)))
    once["spec"]["resourceClaims"][0]["name"] = "card"
    once["spec"]["containers"][0]["resources"]["claims"][0]["name"] = "card"

    _, answer = admit(once)

    assert answer.decision is Decision.ACCEPTED


def test_a_container_that_the_pod_does_not_have_is_refused_before_anything_is_derived() -> None:
    once, _ = admit(pod(gpus(1)))
    record = record_of(once)
    record["containers"][0]["name"] = "ghost"

    _, answer = admit(with_record(once, msgspec.json.encode(record).decode()))

    assert finding_codes(answer.findings) == ["error translationRecordForged"]
    assert 'names container "ghost", which the pod does not have' in answer.findings[0].message


# --- forgeries ------------------------------------------------------------------------------------

SHARE, _ = admit(pod(gpus(mem=1)))
OTHER, _ = admit(pod(gpus(mem=2)))
TEXT = SHARE["metadata"]["annotations"][REQUEST_ANNOTATION]


class Forged(NamedTuple):
    name: str
    pod: Document
    want: str


FORGED = (
    Forged(
        "text of somebody else", with_record(SHARE, "{}"), f"error translationRecordMalformed {AT}"
    ),
    Forged(
        "another pod's request", with_record(OTHER, TEXT), f"error translationRecordForged {AT}"
    ),
    Forged(
        "a request and no claims",
        with_record(pod(container()), TEXT),
        f"error translationRecordForged {AT}",
    ),
    Forged(
        "another template",
        with_changes(SHARE, spec__resourceClaims=OTHER["spec"]["resourceClaims"]),
        f"error translationRecordForged {AT}",
    ),
    Forged(
        "a claim instead of a template",
        with_changes(SHARE, spec__resourceClaims=[{"name": "gpu-main", "resourceClaimName": "x"}]),
        f"error translationRecordForged {AT}",
    ),
    Forged(
        "a container that does not use its claim",
        with_changes(SHARE, spec__containers=[container("main")]),
        f"error translationRecordForged {AT}",
    ),
    Forged(
        "a container of another name",
        with_changes(SHARE, spec__containers=[SHARE["spec"]["containers"][0] | {"name": "x"}]),
        f"error translationRecordForged {AT}",
    ),
    Forged(
        "one use for two claims",
        with_record(
            admit(pod(gpus(mem=1), gpus(1, name="b")))[0],
            admit(pod(gpus(mem=1), gpus(mem=1, name="b")))[0]["metadata"]["annotations"][
                REQUEST_ANNOTATION
            ],
        ),
        f"error translationRecordForged {AT}",
    ),
    Forged(
        "a profile that is not in force",
        with_record(SHARE, TEXT.replace('"hash":"', '"hash":"0')),
        f"error profileChanged {AT}",
    ),
    Forged(
        "a driver that is not known",
        with_record(SHARE, TEXT.replace(HAMI, "x.example")),
        f"error translationRecordMalformed {AT}",
    ),
    Forged(
        "a vocabulary that is not known",
        with_record(SHARE, TEXT.replace('"hami"', '"hamster"')),
        f"error translationRecordMalformed {AT}",
    ),
    Forged(
        "a value that we would have refused",
        with_record(SHARE, TEXT.replace('"nvidia.com/gpumem":"1"', '"nvidia.com/gpumem":"8Gi"')),
        f"error wrongUnit {AT}",
    ),
    Forged(
        "more than a claim holds",
        with_record(SHARE, TEXT.replace('"nvidia.com/gpumem":"1"', '"nvidia.com/gpu":"1e30"')),
        f"error tooManyDevices {AT}",
    ),
)


@pytest.mark.parametrize("case", FORGED, ids=lambda case: case.name)
def test_forged(case: Forged) -> None:
    _, answer = admit(case.pod)

    assert (Decision.REFUSED, [case.want]) == (answer.decision, finding_texts(answer.findings)[:1])


def test_what_is_wrong_with_an_annotation_stands_without_quotes() -> None:
    _, answer = admit(with_record(SHARE, "{}"))

    (finding,) = answer.findings
    assert finding.message.startswith("not what the webhook writes: ")


def test_without_profiles_nothing_derives() -> None:
    _, answer = admit(SHARE, TranslationSnapshot(profiles={}))

    assert [f"error translationRecordMalformed {AT}"] == finding_texts(answer.findings)


# --- keys beside the annotation -------------------------------------------------------------------


def adding(document: Document, name: str, **amounts: Any) -> Document:
    """The pod after somebody added keys to a container, or a container."""
    for container_ in document["spec"]["containers"]:
        if container_["name"] == name:
            container_["resources"]["limits"] = limits(**amounts)
            return document
    document["spec"]["containers"].append(gpus(name=name, **amounts))
    return document


MERGED = (
    ("a container", pod(gpus(1)), "late", {"gpu": 1}, pod(gpus(1), gpus(name="late", gpu=1))),
    ("a key", pod(gpus(mem=1)), "main", {"mig_1g_5gb": 1}, pod(gpus(mem=1, mig_1g_5gb=1))),
)


@pytest.mark.parametrize(
    ("description", "before", "name", "amounts", "whole"), MERGED, ids=[row[0] for row in MERGED]
)
def test_what_was_added_since_is_translated_with_the_rest(
    description: str, before: Document, name: str, amounts: dict[str, Any], whole: Document
) -> None:
    changed, answer = admit(adding(admit(before)[0], name, **amounts))

    at_once, expected = admit(whole)
    assert answer.decision == Decision.TRANSLATED
    assert expected.claims == answer.claims
    assert record_of(at_once) == record_of(changed)
    assert sorted(at_once["spec"]["resourceClaims"], key=str) == sorted(
        changed["spec"]["resourceClaims"], key=str
    )


def test_the_same_keys_again_change_nothing() -> None:
    once, _ = admit(pod(gpus(1, mem=1)))

    again, answer = admit(adding(with_changes(once), "main", gpu=1, mem=1))

    assert answer.decision == Decision.TRANSLATED
    assert pod_view(once) == pod_view(again)


def test_other_amounts_beside_the_annotation_are_refused() -> None:
    once, _ = admit(pod(gpus(1, mem=1)))

    _, answer = admit(adding(with_changes(once), "main", gpu=1, mem=2))

    assert finding_codes(answer.findings) == ["error translationRecordChanged"]


def test_what_kubernetes_allocates_natively_since_is_given_back() -> None:
    once, _ = admit(pod(gpus(1)))
    translation_snapshot_ = translation_snapshot(
        extended_resources={"nvidia.com/gpu": "gpu.nvidia.com"}
    )

    after, answer = admit(adding(once, "late", gpu=1), translation_snapshot_)

    assert (Decision.UNTRANSLATED, True) == (answer.decision, answer.allowed)
    assert pod_view(after).spec.resource_claims is None
    assert [["limits"], ["limits", "requests"]] == [
        sorted(container_["resources"]) for container_ in after["spec"]["containers"]
    ]


def test_keys_that_are_wrong_refuse_the_whole_pod() -> None:
    once, _ = admit(pod(gpus(1)))

    _, answer = admit(adding(once, "late", gpu="500m"))

    assert (answer.decision, answer.operations) == (Decision.REFUSED, ())


def test_a_claim_without_a_name_is_a_claim_with_the_empty_name() -> None:
    """The API server refuses it, but after us; it must not be a bug of ours."""
    once, _ = admit(pod(gpus(1)), BIG)
    (entry,) = once["spec"]["resourceClaims"]
    (use,) = once["spec"]["containers"][0]["resources"]["claims"]
    del entry["name"], use["name"]
    once["spec"]["containers"][0]["resources"]["limits"] = limits(1, mem=5)

    after, answer = admit(once, BIG)

    assert answer.decision is Decision.TRANSLATED
    assert all(entry["name"] for entry in after["spec"]["resourceClaims"])


def test_containers_of_a_forgery_are_named_so_that_it_can_be_read() -> None:
    names = ["\x1b[2J", "n" * 300, *map(str, range(200))]
    once, _ = admit(pod(*(gpus(0, mem=1, name="a"), gpus(1, name="b"))), BIG)
    request = record_of(once)
    request["containers"] = [{"name": name, "limits": limits(mem=1)} for name in names[:30]]

    _, answer = admit(with_record(once, msgspec.json.encode(request).decode()), BIG)

    assert answer.decision is Decision.REFUSED
    for finding in answer.findings:
        assert finding.message.isprintable()
        assert len(finding.message) < 300
