"""Laws of translated pods that are reviewed again: pods with containers that request equal devices.

Equal requests have equal claims and one template, so what distinguishes the claims of a pod are only
the containers that use them, and the names of these.
"""

import copy
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from admission.pods import Decision
from findings.finding import Code
from testing.builders import (
    DRANET,
    HAMI,
    NVIDIA,
    admit,
    container,
    device,
    driver_slice,
    gpus,
    hami_gpu,
    nvidia_gpu,
    pod,
    translation_snapshot,
)
from testing.documents import Document
from translation.cluster.snapshot import TranslationOptions, TranslationSnapshot
from translation.model.choices import Choices, InitContainers

pytestmark = pytest.mark.property

HAMI_SLICE = driver_slice(HAMI, hami_gpu("80Gi"))
NIC_SLICE = driver_slice(DRANET, device("nic"))
SHARES = translation_snapshot(HAMI_SLICE, NIC_SLICE, classes=frozenset({HAMI, DRANET}))
"""A cluster with HAMi's driver only, whose claims are of one container each."""
BOTH = translation_snapshot(
    HAMI_SLICE,
    NIC_SLICE,
    driver_slice(NVIDIA, nvidia_gpu()),
    classes=frozenset({HAMI, NVIDIA, DRANET}),
)
NAMES = ("a", "gpu", "main", "y0", "z")
AMOUNTS: tuple[Document, ...] = (
    {},
    {"nvidia.com/gpu": "1"},
    {"nvidia.com/gpu": "2"},
    {"nvidia.com/gpu": "3"},
    {"nvidia.com/gpu": "33"},
    {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000"},
    {"nvidia.com/gpu": "2", "nvidia.com/gpumem": "1000"},
    {"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "50"},
    {"rdma/ib": "1"},
    {"rdma/ib": "2", "nvidia.com/gpu": "1"},
)
OWN_CLAIMS = tuple({"name": name, "resourceClaimName": "own"} for name in ("gpu", "gpu-main"))

clusters = st.sampled_from((SHARES, BOTH))
options = st.builds(
    TranslationOptions,
    default_gpu_owner=st.sampled_from(("nvidia", "hami")),
    choices=st.builds(Choices, init_containers=st.sampled_from(InitContainers)),
)


@st.composite
def pods_of_equal_requests(draw: st.DrawFn) -> Document:
    """Pods of two to four containers, apps, init containers and sidecars, with few amounts."""
    names = draw(st.permutations(NAMES))[: draw(st.integers(2, 4))]
    amounts = draw(st.lists(st.sampled_from(AMOUNTS), min_size=1, max_size=2))
    containers: dict[str, list[Document]] = {"app": [], "init": [], "sidecar": []}
    for index, name in enumerate(names):
        role = draw(st.sampled_from(sorted(containers))) if index else "app"
        fields = {"restartPolicy": "Always"} if role == "sidecar" else {}
        limits = dict(draw(st.sampled_from(amounts)))
        containers[role].append(container(name, limits, **fields))
    init = draw(st.permutations([*containers["init"], *containers["sidecar"]]))
    own_claims = draw(st.lists(st.sampled_from(OWN_CLAIMS), unique_by=str))
    spec: dict[str, Any] = {"resourceClaims": own_claims} if own_claims else {}
    return pod(*containers["app"], init=init, **spec)


def containers_of(document: Document) -> Iterator[Document]:
    for field in ("initContainers", "containers"):
        yield from document["spec"].get(field) or ()


@given(pods_of_equal_requests(), clusters, options, st.randoms(use_true_random=False))
@example(pod(gpus(1), init=(gpus(2, name="y0"),)), SHARES, TranslationOptions(), Random(0))
@example(pod(gpus(1, name="y0"), init=(gpus(2),)), SHARES, TranslationOptions(), Random(0))
def test_the_own_answer_is_accepted_in_any_order_of_claims(
    document: Document,
    cluster: TranslationSnapshot,
    chosen_options: TranslationOptions,
    chance: Random,
) -> None:
    once, answer = admit(document, cluster, chosen_options)
    assume(answer.decision is Decision.TRANSLATED)
    chance.shuffle(once["spec"]["resourceClaims"])
    for user in containers_of(once):
        chance.shuffle(user.get("resources", {}).get("claims", []))

    _, again = admit(once, cluster, chosen_options)

    assert (again.decision, again.findings, again.operations) == (Decision.ACCEPTED, (), ())


@given(pods_of_equal_requests(), clusters, options)
@example(pod(gpus(1), init=(gpus(2, name="y0"),)), SHARES, TranslationOptions())
def test_a_use_that_is_missing_is_a_forgery(
    document: Document, cluster: TranslationSnapshot, chosen_options: TranslationOptions
) -> None:
    once, answer = admit(document, cluster, chosen_options)
    assume(answer.decision is Decision.TRANSLATED)
    own_names = {entry["name"] for entry in document["spec"].get("resourceClaims", ())}

    for index, user in enumerate(containers_of(once)):
        for place, use in enumerate(user.get("resources", {}).get("claims", ())):
            assert use["name"] not in own_names
            forged = copy.deepcopy(once)
            del list(containers_of(forged))[index]["resources"]["claims"][place]

            _, again = admit(forged, cluster, chosen_options)

            assert [finding.code for finding in again.findings] == [Code.TRANSLATION_RECORD_FORGED]


@given(pods_of_equal_requests(), clusters, options)
@example(pod(gpus(1), init=(gpus(2, name="y0"),)), SHARES, TranslationOptions())
def test_the_legacy_keys_beside_the_own_answer_give_that_answer(
    document: Document, cluster: TranslationSnapshot, chosen_options: TranslationOptions
) -> None:
    once, answer = admit(document, cluster, chosen_options)
    assume(answer.decision is Decision.TRANSLATED)
    extended = copy.deepcopy(once)
    for user, legacy in zip(containers_of(extended), containers_of(document), strict=True):
        limits = legacy.get("resources", {}).get("limits")
        if limits:
            user["resources"]["limits"] = dict(limits)

    again, answer = admit(extended, cluster, chosen_options)

    assert answer.allowed
    assert again["spec"] == once["spec"]
