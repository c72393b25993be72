"""Whole devices of any vendor: the meaning of names is data, shipped or of the cluster."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from findings.finding import Finding, Severity
from testing.builders import (
    admit,
    container,
    derived_claims,
    device,
    devices_of,
    driver_slice,
    finding_texts,
    pod,
    profiles,
    translation_of,
    translation_outcome,
    translation_snapshot,
)
from testing.documents import Document
from translation.cluster.snapshot import (
    TranslationOptions,
    TranslationSnapshot,
    vocabularies_in_force,
)
from translation.model.intents import DeviceKind
from translation.pipeline.translate import Refused, Translated, Untouched
from translation.profiles.profile import parse_profile
from translation.vocabularies.resources import VOCABULARY

LIMITS = "spec.containers[0].resources.limits"
ACME = """
driver: card.acme.example
devices:
  device:
    class: card.acme.example
    resources:
      acme.example/card: {where: {type: card}}
      acme.example/all: {every: true, countAttribute: cardCount}
      acme.example/pair: {connected: {"2": pairId}, variables: [ACME_VISIBLE_CARDS]}
      acme.example/core: {rejected: counts cores, advice: request acme.example/card}
      acme.example/old-*: {class: old.acme.example}
"""
OTHER = """
driver: other.acme.example
devices: {device: {class: other, resources: {acme.example/card: {}}}}
"""


def limited(amounts: Mapping[str, object]) -> Document:
    return pod(container("main", amounts))


def cluster(*texts: str, **fields: Any) -> TranslationSnapshot:
    added = [parse_profile(text, "acme") for text in texts]
    known = {**profiles(), **{profile.driver: profile for profile in added}}
    return TranslationSnapshot(profiles=known, **fields)


def exact(document: Document, snapshot: TranslationSnapshot | None = None) -> list[Document]:
    outcome = translation_of(document, snapshot or cluster())
    return [
        request["exactly"] for claim in outcome.claims for request in devices_of(claim)["requests"]
    ]


def test_the_shipped_profiles_have_the_names_of_the_table() -> None:
    listed = {
        name
        for profile in profiles().values()
        if DeviceKind.DEVICE in profile.devices
        for name in profile.devices[DeviceKind.DEVICE].resources or ()
    }

    assert listed == {*VOCABULARY.keys, *(f"{prefix}*" for prefix in VOCABULARY.key_prefixes)}


def test_all_chips_of_a_node_are_requested_together() -> None:
    (request,) = exact(limited({"google.com/tpu": 8}))

    assert request["allocationMode"] == "All"
    assert "count" not in request
    (selector,) = request["selectors"]
    assert selector["cel"]["expression"].endswith(".chipCount == 8")


def test_connected_devices_precede_any() -> None:
    (claim,) = translation_of(limited({"aws.amazon.com/neuron": 4})).claims
    devices = devices_of(claim)

    (request,) = devices["requests"]
    assert ["connected", "any"] == [way["name"] for way in request["firstAvailable"]]
    assert devices["constraints"] == [
        {
            "requests": ["device/connected"],
            "matchAttribute": "resource.aws.com/devicegroup4_id",
        }
    ]


def test_a_number_without_a_group_is_of_any_devices() -> None:
    (request,) = exact(limited({"aws.amazon.com/neuron": 3}))

    assert request["count"] == 3


def test_a_name_that_the_driver_does_not_tell_apart_is_reported() -> None:
    outcome = translation_of(limited({"rebellions.ai/ATOM": 1}))

    assert [f"warning notPublishedByDriver {LIMITS}[rebellions.ai/ATOM]"] == finding_texts(
        outcome.findings
    )


class Rejected(NamedTuple):
    name: str
    limits: Mapping[str, object]
    want: tuple[str, ...]


REJECTED = (
    Rejected(
        "half a device",
        {"amd.com/gpu": "500m"},
        (f"error notAnInteger {LIMITS}[amd.com/gpu]",),
    ),
    Rejected(
        "less than none, and cores",
        {"amd.com/gpu": -1, "aws.amazon.com/neuroncore": 2},
        (
            f"error negative {LIMITS}[amd.com/gpu]",
            f"error cannotExpress {LIMITS}[aws.amazon.com/neuroncore]",
        ),
    ),
    Rejected(
        "a share of HAMi's",
        {"amd.com/gpu": 1, "amd.com/gpumem": 1000},
        (f"error cannotExpress {LIMITS}[amd.com/gpumem]",),
    ),
)


def test_the_denial_of_a_share_names_the_partitions_that_there_are() -> None:
    driver = "gpu.amd.com"
    published = translation_snapshot(
        driver_slice(driver, _partition("spx_nps1", "191Gi"), _partition("cpx_nps4", "24Gi")),
        driver_slice(driver, _partition("cpx_nps4", "32Gi"), _partition("x", "1Gi"), pool="node-2"),
    )
    advice = "request amd.com/gpu alone, or a partition such as amd.com/cpx_nps4"

    fixes = [
        finding.fix
        for snapshot in (published, translation_snapshot())
        for finding in translation_outcome(limited({"amd.com/gpumem": 1000}), snapshot).findings
        if finding.code == "cannotExpress"
    ]

    assert [
        f"{advice}; published are amd.com/cpx_nps4 (24Gi or 32Gi), amd.com/spx_nps1 (191Gi)",
        advice,
    ] == fixes


def _partition(profile: str, memory: str) -> Document:
    return device(attributes={"partitionProfile": profile}, capacity={"memory": memory})


@pytest.mark.parametrize("case", REJECTED, ids=lambda case: case.name)
def test_what_no_driver_gives_is_rejected_with_the_reason(case: Rejected) -> None:
    outcome = translation_outcome(limited(case.limits))

    assert isinstance(outcome, Refused)
    errors = [finding for finding in outcome.findings if finding.is_error]
    assert case.want == tuple(finding_texts(errors))
    assert all(finding.fix for finding in errors)


def test_devices_of_two_drivers_in_one_container_are_two_claims() -> None:
    document = limited({"gpu.intel.com/xe": 1, "habana.ai/gaudi": 2})

    after, answer = admit(document)

    assert {"gpu.intel.com", "gaudi.intel.com"} == {
        name for claim in answer.claims for name in claim.class_names()
    }
    assert len(after["spec"]["containers"][0]["resources"]["claims"]) == 2
    text = after["metadata"]["annotations"]["drawbridge.internal/request"]
    assert derived_claims(document, text, translation_snapshot()) == answer.claims


def test_another_round_of_admission_changes_nothing() -> None:
    after, _ = admit(limited({"gpu.intel.com/xe": 1, "habana.ai/gaudi": 2}))

    again, answer = admit(after)

    assert after == again
    assert answer.allowed


def test_a_pod_is_left_to_the_plugin_where_the_class_does_not_exist() -> None:
    snapshot = cluster(classes=frozenset({"gpu.intel.com"}))

    outcome = translation_outcome(limited({"amd.com/gpu": 1, "gpu.intel.com/xe": 1}), snapshot)

    assert isinstance(outcome, Untouched)
    assert [f"info untranslatedDeviceKey {LIMITS}[amd.com/gpu]"] == finding_texts(outcome.findings)
    assert "gpu.amd.com does not exist" in outcome.findings[0].message


def test_cores_are_left_to_the_plugin_where_the_class_does_not_exist() -> None:
    outcome = translation_outcome(
        limited({"aws.amazon.com/neuroncore": 2}), cluster(classes=frozenset())
    )

    assert isinstance(outcome, Untouched)


def test_a_pod_passes_through_where_a_class_maps_the_name() -> None:
    snapshot = cluster(
        classes=frozenset({"gpu.amd.com"}), extended_resources={"amd.com/gpu": "gpu.amd.com"}
    )

    outcome = translation_outcome(limited({"amd.com/gpu": 1}), snapshot)

    assert isinstance(outcome, Untouched)
    assert [f"info passedThrough {LIMITS}[amd.com/gpu]"] == finding_texts(outcome.findings)


def test_a_gpu_of_another_vendor_beside_koordinators_key_is_rejected() -> None:
    outcome = translation_outcome(limited({"koordinator.sh/gpu": 50, "amd.com/gpu": 1}))

    assert isinstance(outcome, Refused)


def test_it_is_translated_beside_an_nvidia_gpu() -> None:
    outcome = translation_of(limited({"nvidia.com/gpu": 1, "amd.com/gpu": 1}))

    assert ["nvidia", "resources"] == [used.vocabulary for used in outcome.record.profiles]


# --- names of the cluster -------------------------------------------------------------------------


def test_a_cluster_adds_names_in_a_profile_alone() -> None:
    snapshot = cluster(ACME)

    (card,) = exact(limited({"acme.example/card": 2}), snapshot)
    (every,) = exact(limited({"acme.example/all": 4}), snapshot)
    (old,) = exact(limited({"acme.example/old-card": 1}), snapshot)

    assert ("card.acme.example", 2) == (card["deviceClassName"], card["count"])
    assert card["selectors"][0]["cel"]["expression"].endswith('.type == "card"')
    assert every["allocationMode"] == "All"
    assert old["deviceClassName"] == "old.acme.example"


def test_what_a_container_misses_and_what_is_not_given_is_reported() -> None:
    snapshot = cluster(ACME)

    missed = translation_outcome(limited({"acme.example/pair": 2}), snapshot)
    denied = translation_outcome(limited({"acme.example/core": 2}), snapshot)

    assert isinstance(missed, Translated)
    assert [f"warning envVarNotProvided {LIMITS}[acme.example/pair]"] == finding_texts(
        missed.findings
    )
    assert "ACME_VISIBLE_CARDS" in missed.findings[0].message
    assert errors_and_fixes(denied.findings) == [
        ("acme.example/core counts cores", "request acme.example/card")
    ]


def errors_and_fixes(findings: tuple[Finding, ...]) -> list[tuple[str, str]]:
    return [
        (finding.message, finding.fix) for finding in findings if finding.severity is Severity.ERROR
    ]


@pytest.mark.parametrize(
    ("want", "options"),
    [
        ("card.acme.example", TranslationOptions()),
        ("other", TranslationOptions(profiles={"resources": "other.acme.example"})),
    ],
)
def test_of_two_profiles_with_a_name_the_chosen_one_serves_it(
    want: str, options: TranslationOptions
) -> None:
    outcome = translation_of(limited({"acme.example/card": 1}), cluster(ACME, OTHER), options)

    assert {want} == {name for claim in outcome.claims for name in claim.class_names()}


def test_a_name_that_no_profile_has_is_not_read() -> None:
    assert translation_outcome(limited({"acme.example/card": 1})) == Untouched()


def test_names_of_nics_are_not_added_to_devices_of_any_vendor() -> None:
    names = vocabularies_in_force(TranslationOptions(), profiles())["resources"]

    assert not names.handles("rdma/hca")


def test_published_devices_change_no_claim() -> None:
    published = translation_snapshot(driver_slice("gpu.amd.com", {"name": "gpu-0-128"}))
    document = limited({"amd.com/gpu": 1})

    assert translation_of(document, published).claims == translation_of(document).claims
