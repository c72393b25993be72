"""Pods with an entry of their PodGroup share one claim."""

from typing import Any

import pytest

from allocator.declarations.group_claims import share_claims
from allocator.declarations.pod_group import PodGroup
from allocator.pods.claims import Name
from kube.api.core import Pod
from kube.api.meta import convert
from kube.api.resource import ResourceClaim, ResourceClaimTemplate

LINK = {"name": "link", "resourceClaimTemplateName": "fabric"}
OWN = {"name": "own", "resourceClaimTemplateName": "fabric"}
DIRECT = {"name": "link", "resourceClaimName": "fabric"}
SHARED = {"name": "link", "resourceClaimName": "ring.link-shared"}
TEMPLATE = convert({"metadata": {"name": "fabric"}}, ResourceClaimTemplate)


def pod(*entries: dict[str, str], group: str = "ring", recorded: str = "") -> Pod:
    statuses = [{"name": "link", "resourceClaimName": recorded}] if recorded else []
    spec = {"resourceClaims": entries, "schedulingGroup": {"podGroupName": group}}
    document = {
        "metadata": {"name": "a", "namespace": "team"},
        "spec": spec,
        "status": {"resourceClaimStatuses": statuses},
    }
    return convert(document, Pod)


def pod_group(claim_name: str = "") -> PodGroup:
    statuses = [{"name": "link", "resourceClaimName": claim_name}] if claim_name else []
    document = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "metadata": {"name": "ring", "namespace": "team", "uid": "1"},
        "spec": {"resourceClaims": [LINK]},
        "status": {"resourceClaimStatuses": statuses},
    }
    return convert(document, PodGroup)


def shared(
    value: Pod, group: PodGroup, *claims: str, has_template: bool = True
) -> tuple[list[Any], list[Name]]:
    """Return the entries of a pod, and the names of new claims."""
    existing = {
        ("team", name): convert({"metadata": {"name": name, "namespace": "team"}}, ResourceClaim)
        for name in claims
    }
    templates = {("team", "fabric"): TEMPLATE} if has_template else {}
    answer = share_claims([value], [group], existing, templates)
    entries = answer.pods[0].spec.resource_claims or ()
    return [convert_entry(entry) for entry in entries], list(answer.claims)


def convert_entry(entry: Any) -> dict[str, str]:
    source = entry.resource_claim_template_name
    if source is not None:
        return {"name": entry.name, "resourceClaimTemplateName": source}
    return {"name": entry.name, "resourceClaimName": entry.resource_claim_name}


@pytest.mark.parametrize(
    ("name", "value", "entries"),
    [
        ("the entry of the group", pod(LINK, OWN), [SHARED, OWN]),
        ("an entry that resembles it", pod(OWN), [OWN]),
        ("a claim by its name", pod(DIRECT), [DIRECT]),
        ("another group", pod(LINK, group="other"), [LINK]),
        ("a claim that is known already", pod(LINK, recorded="ring-link-x2x4z"), [LINK]),
    ],
    ids=str,
)
def test_an_entry_of_the_group_names_its_claim(
    name: str, value: Pod, entries: list[dict[str, str]]
) -> None:
    is_shared = SHARED in entries

    assert shared(value, pod_group()) == (
        entries,
        [("team", "ring.link-shared")] if is_shared else [],
    ), name


def test_a_claim_that_exists_is_not_made_again() -> None:
    entry = {"name": "link", "resourceClaimName": "ring-link-x2x4z"}

    assert shared(pod(LINK), pod_group("ring-link-x2x4z"), "ring-link-x2x4z") == ([entry], [])


def test_without_the_template_nothing_is_shared() -> None:
    """The pod waits for the template by its name."""
    assert shared(pod(LINK), pod_group(), has_template=False) == ([LINK], [])


def test_the_claim_is_that_of_the_pod_group() -> None:
    answer = share_claims([pod(LINK)], [pod_group()], {}, {("team", "fabric"): TEMPLATE})

    (owner,) = answer.claims["team", "ring.link-shared"].metadata.owner_references or ()
    assert (owner.kind, owner.name, owner.uid) == ("PodGroup", "ring", "1")
