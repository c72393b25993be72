"""Laws of NICs that hold for any names and sharing in a cluster's own profiles."""

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.pods import Decision
from kube.api.resource import ResourceSlice
from kube.cel.compile import compile_selector
from kube.cel.library import Environment
from kube.names import REQUEST_ANNOTATION
from testing.builders import (
    DRANET,
    SRIOV,
    admit,
    container,
    derived_claims,
    device,
    devices_of,
    driver_slice,
    pod,
    profiles,
    translation_snapshot,
)
from testing.documents import Document
from translation.cluster.snapshot import TranslationSnapshot
from translation.profiles.profile import Profile, parse_profile

pytestmark = pytest.mark.property

NAMES = (
    "rdma/hca",
    "rdma/ib",
    "aliyun/erdma",
    "vpc.amazonaws.com/efa",
    "networking.gke.io.networks/blue",
    "networking.gke.io.networks/blue.IP",
    "mellanox.com/mlnx_rdma",
    "acme.example/port",
    "acme.example/pool",
    "koordinator.sh/rdma",
    "nvidia.com/gpu",
    "intel.com/qat",
)

words = st.sampled_from(("a", "rdma", "k8s.cni.cncf.io/resourceName", "b.example/c"))
texts = st.sampled_from(("eth1", "", '"', "\\", "'] || true || ['", "\n", "${x}", "é"))
values = st.booleans() | st.integers(0, 9) | texts
meanings = st.fixed_dictionaries(
    {},
    optional={
        "class": st.just("other"),
        "where": st.dictionaries(words, values, max_size=2),
        "shortName": words,
        "fullName": words,
    },
)
patterns = st.sampled_from((*NAMES, "*", "rdma/*", "acme.example/*", "nvidia.com/*", "a*"))


@st.composite
def own_profiles(draw: st.DrawFn, driver: str) -> Profile:
    """A cluster's own profile of a driver of NICs."""
    nic: dict[str, Any] = {
        "class": "nics",
        "sharing": draw(st.sampled_from(("always", "published", "never"))),
        "unique": draw(st.sampled_from((None, "uuid"))),
    }
    if draw(st.integers(0, 4)):
        nic["resources"] = draw(st.dictionaries(patterns, meanings, max_size=5))
        nic["resources"].setdefault("*", {})
    # JSON is YAML, too.
    return parse_profile(json.dumps({"driver": driver, "devices": {"nic": nic}}), driver)


@st.composite
def snapshots(draw: st.DrawFn) -> TranslationSnapshot:
    """The shipped profiles of GPUs, with a cluster's own of NICs, and devices that may be shared."""
    own = {driver: draw(own_profiles(driver)) for driver in (DRANET, SRIOV)}
    slices: list[ResourceSlice] = [
        driver_slice(driver, device(shared=draw(st.sampled_from((None, True)))))
        for driver in draw(st.sets(st.sampled_from((DRANET, SRIOV))))
    ]
    return translation_snapshot(
        *sorted(slices, key=lambda slice_: slice_.spec.driver), profiles={**profiles(), **own}
    )


limits = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(("0", "1", "2", "33")), max_size=4)


@st.composite
def nic_pods(draw: st.DrawFn) -> Document:
    names = draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True))
    parting = draw(st.integers(0, len(names) - 1))
    documents = [container(name, draw(limits)) for name in names]
    for document in documents[:parting]:
        if draw(st.booleans()):
            document["restartPolicy"] = "Always"
    return pod(*documents[parting:], init=documents[:parting])


@given(nic_pods(), snapshots())
def test_admitting_never_raises_and_is_a_fixpoint(
    document: Document, snapshot: TranslationSnapshot
) -> None:
    once, answer = admit(document, snapshot)
    if answer.decision is not Decision.TRANSLATED:
        assert once == document
        return

    _, again = admit(once, snapshot)

    assert (Decision.ACCEPTED, ()) == (again.decision, again.operations)
    assert Counter(claim.template for claim in answer.claims) == Counter(
        claim.template for claim in again.claims
    )


@given(nic_pods(), snapshots())
def test_claims_derive_from_the_annotation_alone(
    document: Document, snapshot: TranslationSnapshot
) -> None:
    once, answer = admit(document, snapshot)
    if answer.decision is not Decision.TRANSLATED:
        return

    text = once["metadata"]["annotations"][REQUEST_ANNOTATION]

    assert answer.claims == derived_claims(document, text, snapshot)


@given(nic_pods(), snapshots())
def test_all_devices_are_asked_for_once_and_have_no_number(
    document: Document, snapshot: TranslationSnapshot
) -> None:
    _, answer = admit(document, snapshot)
    for claim in answer.claims:
        for request in devices_of(claim)["requests"]:
            exactly = request["exactly"]
            assert ("count" in exactly) is (exactly["allocationMode"] == "ExactCount")
            for selector in exactly.get("selectors", ()):
                compile_selector(selector["cel"]["expression"], Environment.NEW)
