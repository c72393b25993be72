"""The claims that a pod needs: its own, shared ones, and those that are still to be made."""

from typing import Any, NamedTuple

import msgspec
import pytest

from allocator.pods.claims import claim_name, pod_claims
from kube.api.core import Pod
from kube.api.meta import ObjectMeta, OwnerReference, convert
from kube.api.resource import ResourceClaim, ResourceClaimTemplate, ResourceClaimTemplateSpec
from testing.allocation.builders import allocated_claim, claim, request, result

DIRECT = {"name": "gpu", "resourceClaimName": "shared"}
MADE = {"name": "gpu", "resourceClaimTemplateName": "one"}
TEMPLATE = ResourceClaimTemplate(
    metadata=ObjectMeta(name="one", namespace="default"),
    spec=ResourceClaimTemplateSpec(
        metadata=ObjectMeta(labels={"team": "a"}), spec=claim(request()).spec
    ),
)


def pod(*entries: Any, recorded: str | None = None, statuses: Any = None, uid: str = "") -> Pod:
    if recorded is not None:
        statuses = [{"name": "gpu", "resourceClaimName": recorded}]
    return convert(
        {
            "metadata": {"name": "pod", "namespace": "default", "uid": uid},
            "spec": {"resourceClaims": list(entries)},
            "status": {"resourceClaimStatuses": statuses or []},
        },
        Pod,
    )


def owned_claim(name: str, owner: str = "pod", uid: str = "") -> ResourceClaim:
    reference = OwnerReference(api_version="v1", kind="Pod", name=owner, uid=uid, controller=True)
    metadata = ObjectMeta(name=name, namespace="default", owner_references=(reference,))
    return msgspec.structs.replace(claim(request()), metadata=metadata)


class Case(NamedTuple):
    name: str
    want: tuple[list[str], list[str], list[str]]
    pod: Pod
    known: tuple[ResourceClaim, ...] = ()


HELD = allocated_claim(result("gpu-0"), name="shared")
CASES = (
    Case("no entries, no claims", ([], [], []), pod()),
    Case("a direct reference", (["shared"], [], []), pod(DIRECT), (claim(name="shared"),)),
    Case("to a claim that is allocated", ([], ["shared"], []), pod(DIRECT), (HELD,)),
    Case("to one that is not there", ([], [], ["claimNotFound"]), pod(DIRECT)),
    Case(
        "two entries of one claim are one claim",
        (["shared"], [], []),
        pod(DIRECT, {**DIRECT, "name": "again"}),
        (claim(name="shared"),),
    ),
    Case("a template of which nothing was made yet", (["pod-gpu"], [], []), pod(MADE)),
    Case("a claim that is recorded", (["pod-gpu-x"], [], []), pod(MADE, recorded="pod-gpu-x"), (owned_claim("pod-gpu-x"),)),
    Case("is made under its name where it is gone", (["pod-gpu-x"], [], []), pod(MADE, recorded="pod-gpu-x")),
    Case("an entry that needs none", ([], [], []), pod(MADE, statuses=[{"name": "gpu"}])),
    Case(
        "a template that is not there",
        ([], [], ["templateNotFound"]),
        pod({**MADE, "resourceClaimTemplateName": "lost"}),
    ),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_pod_claims(case: Case) -> None:
    known_claims = {claim_name(first_claim): first_claim for first_claim in case.known}

    claims = pod_claims(case.pod, known_claims, {("default", "one"): TEMPLATE})

    assert case.want == (
        [first_claim.metadata.name for first_claim in claims.open],
        [first_claim.metadata.name for first_claim in claims.held],
        [missing.code for missing in claims.missing],
    )


@pytest.mark.parametrize(
    ("is_its_own", "existing"),
    [
        (True, owned_claim("pod-gpu")),
        (True, owned_claim("pod-gpu", uid="u1")),
        (False, owned_claim("pod-gpu", uid="u2")),
        (False, owned_claim("pod-gpu", owner="other")),
        (False, claim(name="pod-gpu")),
    ],
    ids=["by name", "by uid", "of a namesake before", "of another pod", "of nobody"],
)
def test_a_claim_of_the_foreseeable_name_is_the_pods_if_it_owns_it(
    is_its_own: bool, existing: ResourceClaim
) -> None:
    known_claims = {claim_name(existing): existing}

    (open_,) = pod_claims(pod(MADE, uid="u1"), known_claims, {("default", "one"): TEMPLATE}).open

    assert is_its_own == (open_ is existing)


def test_a_made_claim_is_what_the_controller_would_make() -> None:
    (open_,) = pod_claims(pod(MADE, uid="u1"), {}, {("default", "one"): TEMPLATE}).open

    assert open_.spec == TEMPLATE.spec.spec
    assert open_.metadata.labels == {"team": "a"}
    (owner,) = open_.metadata.owner_references or ()
    assert (owner.kind, owner.name, owner.uid, owner.controller) == ("Pod", "pod", "u1", True)
