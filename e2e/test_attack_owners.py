"""ownerReferences that users point at the objects of others: nothing of others goes, and nothing of ours stays away."""

import itertools
import json
from collections.abc import Iterator

import pytest

from controllers.templates.actions import POD_CLAIM_ANNOTATION
from e2e.access import Access, Object, stream
from e2e.objects import claim_template, pod
from e2e.users import EDITOR, add_user
from testing.documents import api_object

pytestmark = pytest.mark.usefixtures("fleet", "drawbridge")

LIMITS = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 100}
GATED = [{"name": "story.internal/wait"}]
TIMEOUT_S = 120.0

_numbers = itertools.count(1)


@pytest.fixture
def victim(cluster: Access) -> Iterator[Object]:
    """A pod of somebody else that runs with a translated claim."""
    other = f"attack-owners-{next(_numbers)}"
    cluster.kubectl("create", "namespace", other)
    cluster.wait_for("serviceaccounts", "default", other)
    cluster.kubectl("create", "-n", other, "-f", "-", input=stream(pod("victim", limits=LIMITS)))
    yield cluster.wait_running("victim", other, timeout_s=TIMEOUT_S)
    cluster.kubectl("delete", "namespace", other, "--wait=false")


def reference(owner: Object, kind: str = "Pod") -> Object:
    metadata = owner["metadata"]
    return {
        "apiVersion": "v1",
        "kind": kind,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def names_of(cluster: Access, kind: str, namespace: str) -> set[str]:
    return {document["metadata"]["uid"] for document in cluster.objects(kind, namespace)}


def test_a_template_that_is_given_away_is_created_again(
    cluster: Access, namespace: str, victim: Object
) -> None:
    user = add_user(cluster, namespace, EDITOR)
    waiting = pod("share", limits=LIMITS, schedulingGates=GATED)
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=stream(waiting), kubeconfig=user)
    (entry,) = cluster.get("pods", "share", namespace)["spec"]["resourceClaims"]
    name = entry["resourceClaimTemplateName"]
    first = cluster.wait_for("resourceclaimtemplates", name, namespace)["metadata"]["uid"]
    elsewhere = victim["metadata"]["namespace"]
    before = [names_of(cluster, kind, elsewhere) for kind in ("pods", "resourceclaims")]

    # An owner in another namespace counts as gone, so the template is collected.
    patch_text = json.dumps({"metadata": {"ownerReferences": [reference(victim)]}})
    template = ("resourceclaimtemplate", name, "-n", namespace)
    cluster.kubectl("patch", *template, "--type=merge", "-p", patch_text, kubeconfig=user)
    cluster.wait_for(
        "resourceclaimtemplates",
        name,
        namespace,
        until=lambda document: document["metadata"]["uid"] != first,
        timeout_s=TIMEOUT_S,
    )
    ungated = json.dumps({"spec": {"schedulingGates": None}})
    cluster.kubectl("patch", "-n", namespace, "pod", "share", "--type=merge", "-p", ungated)

    cluster.wait_running("share", namespace, timeout_s=TIMEOUT_S)
    assert before == [names_of(cluster, kind, elsewhere) for kind in ("pods", "resourceclaims")]


def test_a_claim_that_names_a_pod_of_others_changes_nothing_for_it(
    cluster: Access, namespace: str, victim: Object
) -> None:
    user = add_user(cluster, namespace, EDITOR)
    elsewhere = victim["metadata"]["namespace"]
    (status,) = victim["status"]["resourceClaimStatuses"]
    before = [names_of(cluster, kind, elsewhere) for kind in ("pods", "resourceclaims")]
    forged = api_object(
        "ResourceClaim",
        status["resourceClaimName"],
        annotations={POD_CLAIM_ANNOTATION: status["name"]},
        ownerReferences=[reference(victim)],
        spec=claim_template("any", "gpu.example.com")["spec"]["spec"],
    )

    cluster.kubectl("create", "-n", namespace, "-f", "-", input=stream(forged), kubeconfig=user)
    cluster.wait_gone("resourceclaims", status["resourceClaimName"], namespace, timeout_s=TIMEOUT_S)

    assert before == [names_of(cluster, kind, elsewhere) for kind in ("pods", "resourceclaims")]
    reasons = {event["reason"] for event in cluster.objects("events", elsewhere)}
    assert not {reason for reason in reasons if reason.startswith("ResourceClaim")}
    assert cluster.get("pods", "victim", elsewhere)["status"]["phase"] == "Running"
