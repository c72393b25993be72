"""Templates, annotations and reviews that others write in our name gain nothing; our own heal.

Every forger here may do what the administrator may; that is more than most will have.
"""

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from e2e.access import Access, Object, stream
from e2e.attacks import FORGERIES, GPU, MEMORY, Forgery, create, dry_run, forgeable
from e2e.drawbridge import CONTROLLER, Drawbridge, command_line
from e2e.inventory import HAMI, NVIDIA
from e2e.objects import claim_template, deployment, pod
from e2e.older_kubernetes import needs
from e2e.translated import devices, legacy_keys, opt_out
from kube.names import MANAGED_LABEL, REQUEST_ANNOTATION
from kube.quantity import Quantity

pytestmark = pytest.mark.usefixtures("fleet", "drawbridge")

SHARE = pod("share", limits={GPU: 1, MEMORY: 3000})
WANTED = {"memory": Quantity("3000Mi"), "cores": Quantity(0)}


def template_of(translated: Object) -> str:
    """The name of the one template that a translated pod uses."""
    (entry,) = translated["spec"]["resourceClaims"]
    return str(entry["resourceClaimTemplateName"])


def events_of(cluster: Access, namespace: str, name: str) -> dict[str, str]:
    """Reason to message of the events about a pod."""
    return {
        object_["reason"]: object_["message"]
        for object_ in cluster.objects("events", namespace)
        if object_["involvedObject"]["name"] == name
    }


def assert_has_share(cluster: Access, running: Object) -> None:
    """The pod has the device that its legacy keys asked for."""
    claims = cluster.objects("resourceclaims", running["metadata"]["namespace"])
    (main,) = devices(running, claims)["main"]
    assert main.driver == HAMI
    assert main.amounts == WANTED


# --- templates under our name ---------------------------------------------------------------------


def test_a_template_of_other_content_under_our_name_is_refused_with_the_remedy(
    cluster: Access, namespace: str
) -> None:
    name = template_of(dry_run(cluster, namespace, SHARE))
    claim_template_ = claim_template(name, NVIDIA, count=4)
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=stream(claim_template_))
    cluster.wait_until(
        lambda: create(cluster, namespace, SHARE, "--dry-run=server")[0],
        "the webhook knows of the template",
    )

    status, words = create(cluster, namespace, SHARE)

    assert status == 1
    assert f"ResourceClaimTemplate {name} exists with content that does not match" in words
    remedy = f"kubectl delete resourceclaimtemplate -n {namespace} {name}"
    assert remedy in words
    assert cluster.find("pods", "share", namespace) is None
    cluster.kubectl(*remedy.split()[1:])
    cluster.wait_until(
        lambda: create(cluster, namespace, SHARE)[0] == 0, "the webhook knows that it is gone"
    )
    assert_has_share(cluster, cluster.wait_running("share", namespace))


@pytest.fixture
def without_controller(cluster: Access, drawbridge: Drawbridge) -> Iterator[Callable[[], None]]:
    """The controller does not run until the yielded function is called."""

    def again() -> None:
        drawbridge.start(CONTROLLER)
        drawbridge.wait_ready()

    drawbridge.stop(CONTROLLER)
    yield again
    if CONTROLLER not in cluster.children:
        again()


REPLACED = frozenset({"ResourceClaimTemplateReplaced", "ResourceClaimReplaced"})


@needs(37, "a claim controller that makes a claim in place of one that was deleted")
def test_a_template_that_slips_in_after_the_webhook_looked_is_replaced(
    cluster: Access, namespace: str, without_controller: Callable[[], None]
) -> None:
    assert create(cluster, namespace, SHARE) == (0, "")
    name = template_of(cluster.get("pods", "share", namespace))
    claim_template_ = claim_template(name, "dearer.internal")
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=stream(claim_template_))
    waiting = cluster.wait_for(
        "pods", "share", namespace, until=lambda stored: "resourceClaimStatuses" in stored["status"]
    )
    (of_poison,) = cluster.objects("resourceclaims", namespace)
    assert of_poison["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1

    without_controller()

    running = cluster.wait_running("share", namespace)
    assert waiting["metadata"]["uid"] == running["metadata"]["uid"]
    assert_has_share(cluster, running)
    (claim,) = cluster.objects("resourceclaims", namespace)
    assert of_poison["metadata"]["uid"] != claim["metadata"]["uid"]
    template = cluster.get("resourceclaimtemplates", name, namespace)
    assert MANAGED_LABEL in template["metadata"]["labels"]
    assert template["spec"]["spec"] == claim["spec"]
    cluster.wait_until(
        lambda: REPLACED <= events_of(cluster, namespace, "share").keys(), "the pod is told of both"
    )
    events_of_ = events_of(cluster, namespace, "share")
    assert (
        f"ResourceClaimTemplate {name} had other content"
        in events_of_["ResourceClaimTemplateReplaced"]
    )
    assert of_poison["metadata"]["name"] in events_of_["ResourceClaimReplaced"]


# --- annotations ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def honest(cluster: Access, workshop: str) -> Object:
    """A translated pod, as a forger finds it."""
    return forgeable(dry_run(cluster, workshop, SHARE))


@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda forgery: forgery.name)
def test_a_pod_made_with_a_forged_annotation_is_refused(
    cluster: Access, workshop: str, honest: Object, forgery: Forgery
) -> None:
    copy_ = copy.deepcopy(honest)
    forgery.change(copy_)

    status, words = create(cluster, workshop, copy_, "--dry-run=server")

    assert status == 1
    assert 'The Pod "forged" is invalid' in words
    for word in forgery.words:
        assert word in words


def test_a_pod_made_with_an_honest_annotation_is_accepted_as_it_is(
    cluster: Access, workshop: str, honest: Object
) -> None:
    assert honest["spec"] == dry_run(cluster, workshop, honest)["spec"]


@pytest.fixture(scope="module")
def living(cluster: Access, stage: str) -> str:
    """A namespace with a translated pod, `share`, and one without devices, `plain`."""
    cluster.kubectl("create", "-n", stage, "-f", "-", input=stream([SHARE, pod("plain")]))
    for name in ("share", "plain"):
        cluster.wait_running(name, stage)
    return stage


@pytest.mark.parametrize("subresource", ["", "status"], ids=["directly", "through pods/status"])
@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("share", "{}", "the pod's claims derive from it, so it cannot change"),
        ("share", None, "the pod's claims derive from it, so it cannot change"),
        (
            "plain",
            "{}",
            "can only be set when a pod is created, and this pod was created without it",
        ),
    ],
    ids=["changed", "taken away", "added"],
)
def test_the_annotation_of_a_pod_that_lives_cannot_change(
    *,
    cluster: Access,
    living: str,
    name: str,
    text: str | None,
    words: str,
    subresource: str,
) -> None:
    before = cluster.get("pods", name, living)
    patch = json.dumps({"metadata": {"annotations": {REQUEST_ANNOTATION: text}}})
    command = ("patch", "-n", living, "pod", name, "--type=merge", "-p", patch)

    output = cluster.kubectl(*command, f"--subresource={subresource}", check=False)

    assert output.returncode == 1
    assert words in output.stderr
    assert before["metadata"] == cluster.get("pods", name, living)["metadata"]


def test_an_annotation_past_the_webhook_gains_nothing(cluster: Access, namespace: str) -> None:
    """A namespace that opts out is not reviewed, so anything may stand on its pods."""
    opt_out(cluster, namespace)
    annotations = {REQUEST_ANNOTATION: '{"translationVersion": [[['}
    garbage = pod("garbage", claims={"gpu": "everything"}, annotations=annotations)
    assert create(cluster, namespace, garbage) == (0, "")

    cluster.wait_until(
        lambda: "TranslationNotSigned" in events_of(cluster, namespace, "garbage"),
        "the controller says what it thinks of the annotation",
    )

    assert cluster.objects("resourceclaimtemplates", namespace) == []
    assert cluster.objects("resourceclaims", namespace) == []


# --- reviews --------------------------------------------------------------------------------------


def review(namespace: str, document: Object, **fields: Any) -> bytes:
    """Return the review that the API server would send, from somebody else."""
    pods = {"group": "", "version": "v1", "resource": "pods"}
    request = {
        "uid": "0f0f0f0f-0000-4000-8000-000000000000",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": pods,
        "namespace": namespace,
        "operation": "CREATE",
        "userInfo": {"username": "system:admin"},
        "object": document,
        "dryRun": False,
        **fields,
    }
    head = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    return json.dumps({**head, "request": request}).encode()


def test_a_forged_review_is_answered_and_changes_nothing(
    cluster: Access, drawbridge: Drawbridge, namespace: str
) -> None:
    status, body = drawbridge.post(review(namespace, SHARE))

    answer = json.loads(body)["response"]
    assert (status, True, "JSONPatch") == (200, answer["allowed"], answer["patchType"])
    # By the time that an honest pod's template is there, a forged one's would be.
    other = pod("other", limits={GPU: 1, MEMORY: 1234})
    assert create(cluster, namespace, other) == (0, "")
    running = cluster.wait_running("other", namespace)
    (template,) = cluster.objects("resourceclaimtemplates", namespace)
    assert template_of(running) == template["metadata"]["name"]
    assert cluster.find("pods", "share", namespace) is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b"\xff\xfe",
        b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}',
        b"[" * 100_000,
        review("default", SHARE, resource={"group": "", "version": "v1", "resource": "secrets"}),
        review("default", SHARE, operation=5),
    ],
    ids=[
        "nothing",
        "an empty object",
        "a list",
        "no text",
        "no request",
        "depth",
        "not about pods",
        "a number for a word",
    ],
)
def test_garbage_is_a_bad_request(drawbridge: Drawbridge, body: bytes) -> None:
    status, text = drawbridge.post(body)

    assert status == 400
    assert text


@pytest.mark.parametrize(
    "body",
    [
        review("default", {"spec": {"containers": 7}}),
        review("default", SHARE, operation="UPDATE", oldObject=None),
    ],
    ids=["no pod", "an update of nothing"],
)
def test_a_review_of_what_is_no_pod_is_denied(drawbridge: Drawbridge, body: bytes) -> None:
    status, text = drawbridge.post(body)

    answer = json.loads(text)["response"]
    assert (status, answer["allowed"]) == (200, False)
    assert answer["uid"] == json.loads(body)["request"]["uid"]
    assert "spec: drawbridge[invalidObject]: " in answer["status"]["message"]


def test_what_is_no_json_is_not_read(drawbridge: Drawbridge) -> None:
    assert drawbridge.post(review("default", SHARE), content_type="text/plain")[0] == 415
    assert drawbridge.post(review("default", SHARE), path="/elsewhere")[0] == 404


# --- what is printed, and what heals --------------------------------------------------------------


def printed(cluster: Access, namespace: str, *documents: Object) -> list[Object]:
    """Return the output of `drawbridge translate` for objects."""
    arguments = ("translate", "-f", "-", "--live", "-n", namespace, "-o", "json")
    command_line_ = command_line(cluster, *arguments, input=stream(documents))
    assert command_line_.returncode == 0, command_line_.stderr
    objects: list[Object] = json.loads(command_line_.stdout)["objects"]
    return objects


def test_what_translate_prints_is_accepted_as_it_is_and_never_collected(
    cluster: Access, namespace: str
) -> None:
    objects = printed(cluster, namespace, SHARE, deployment("serving", SHARE, replicas=2))
    (template, translated, workload) = objects
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream(objects))
    cluster.wait_for(
        "deployments",
        "serving",
        namespace,
        until=lambda stored: stored["status"].get("readyReplicas") == 2,
    )
    cluster.wait_running("share", namespace)

    for running in cluster.objects("pods", namespace):
        assert legacy_keys(running) == set()
        assert translated["spec"]["resourceClaims"] == running["spec"]["resourceClaims"]
        assert_has_share(cluster, running)
    inside = cluster.get("deployments", "serving", namespace)["spec"]["template"]
    assert workload["spec"]["template"]["metadata"] == inside["metadata"]

    # A template of ours is collected after this one could have been; it stays all the same.
    cluster.kubectl("delete", "-n", namespace, "pod/share", "deployment/serving")
    cluster.wait_until(lambda: not cluster.objects("pods", namespace), "the pods are gone")
    later = pod("later", limits={GPU: 1, MEMORY: 1234})
    assert create(cluster, namespace, later) == (0, "")
    template_name = template_of(cluster.wait_running("later", namespace))
    assert cluster.find("resourceclaimtemplates", template_name, namespace)
    cluster.kubectl("delete", "-n", namespace, "pod", "later")
    cluster.wait_gone("resourceclaimtemplates", template_name, namespace)
    (object_,) = cluster.objects("resourceclaimtemplates", namespace)
    assert template["metadata"]["name"] == object_["metadata"]["name"]


def test_a_template_that_is_deleted_while_a_pod_waits_comes_back(
    cluster: Access, namespace: str
) -> None:
    waiting = pod(
        "share", limits={GPU: 1, MEMORY: 3000}, schedulingGates=[{"name": "story.internal/wait"}]
    )
    assert create(cluster, namespace, waiting) == (0, "")
    name = template_of(cluster.get("pods", "share", namespace))
    first = cluster.wait_for("resourceclaimtemplates", name, namespace)

    cluster.kubectl("delete", "-n", namespace, "resourceclaimtemplate", name)

    second = cluster.wait_for("resourceclaimtemplates", name, namespace)
    assert first["metadata"]["uid"] != second["metadata"]["uid"]
    assert first["spec"] == second["spec"]
    patch_text = json.dumps({"spec": {"schedulingGates": None}})
    cluster.kubectl("patch", "-n", namespace, "pod", "share", "--type=merge", "-p", patch_text)
    assert_has_share(cluster, cluster.wait_running("share", namespace))
