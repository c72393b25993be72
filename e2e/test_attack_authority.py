"""A request annotation is no authority: its author gets nothing that its keys would not give.

The attackers are users of one namespace, with the rights that clusters give people.
"""

import copy
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.access import Access, Object, stream
from e2e.drawbridge import CONTROLLER, ROOT, Drawbridge, command_line
from e2e.inventory import HAMI
from e2e.objects import claim_template, pod
from e2e.translated import devices, legacy_keys, opt_out
from e2e.users import EDITOR, NOBODY, PODS_ONLY, add_user
from kube.names import (
    REQUEST_ANNOTATION,
    ROTATE_ANNOTATION,
    SIGNATURE_ANNOTATION,
    SIGNING_SECRET,
    TRANSLATE_LABEL,
)
from kube.quantity import Quantity
from testing.documents import api_object

pytestmark = pytest.mark.usefixtures("fleet", "drawbridge")

GPU, MEMORY = "nvidia.com/gpu", "nvidia.com/gpumem"
SHARE = pod("share", limits={GPU: 1, MEMORY: 4000})
GATED = [{"name": "story.internal/wait"}]


def create(
    cluster: Access, namespace: str, document: Object, *flags: str, user: Path | None = None
) -> tuple[int, str]:
    """Exit status and words of `kubectl create`."""
    command = ("create", "-n", namespace, "-f", "-", *flags)
    output = cluster.kubectl(*command, input=stream(document), check=False, kubeconfig=user)
    return output.returncode, output.stderr


def dry_run(cluster: Access, namespace: str, document: Object, user: Path | None = None) -> Object:
    """The object as it would be created."""
    command = ("create", "-n", namespace, "--dry-run=server", "-o", "json", "-f", "-")
    stdout = cluster.kubectl(*command, input=stream(document), kubeconfig=user).stdout
    created: Object = json.loads(stdout)
    return created


def printed(cluster: Access, namespace: str, document: Object, *flags: str) -> Object:
    """The pod that `drawbridge translate` prints."""
    arguments = ("translate", "-f", "-", "--live", "-n", namespace, "-o", "json", *flags)
    command_line_ = command_line(cluster, *arguments, input=stream(document))
    assert command_line_.returncode == 0, command_line_.stderr
    objects: list[Object] = json.loads(command_line_.stdout)["objects"]
    return next(object_ for object_ in objects if object_["kind"] == "Pod")


def template_of(translated: Object) -> str:
    (entry,) = translated["spec"]["resourceClaims"]
    return str(entry["resourceClaimTemplateName"])


def events_of(cluster: Access, namespace: str, name: str) -> dict[str, str]:
    """Reason to message of the events about a pod."""
    return {
        object_["reason"]: object_["message"]
        for object_ in cluster.objects("events", namespace)
        if object_["involvedObject"]["name"] == name
    }


def copied(translated: Object, name: str, **annotations: str) -> Object:
    """A pod as a user would write it after another one."""
    spec = copy.deepcopy(translated["spec"])
    for field in ("nodeName", "serviceAccountName", "serviceAccount", "volumes", "tolerations"):
        spec.pop(field, None)
    for container in spec["containers"]:
        container.pop("volumeMounts", None)
    shown = translated["metadata"]["annotations"]
    return api_object("Pod", name, annotations={**shown, **annotations}, spec=spec)


def apply_quota(cluster: Access, namespace: str, **hard: str) -> None:
    head = api_object("ResourceQuota", "gpus")
    quota = {**head, "spec": {"hard": hard}}
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream(quota))
    cluster.wait_until(
        lambda: "quotaNotCounted" in create(cluster, namespace, SHARE, "--dry-run=server")[1],
        "the webhook knows of the quota",
    )


def assert_nothing_was_made(cluster: Access, namespace: str) -> None:
    assert cluster.objects("resourceclaimtemplates", namespace) == []
    assert cluster.objects("resourceclaims", namespace) == []


# --- past quotas and settings ---------------------------------------------------------------------


def test_a_printed_manifest_is_no_way_around_a_quota(cluster: Access, namespace: str) -> None:
    user = add_user(cluster, namespace, PODS_ONLY)
    for resource in ("resourceclaimtemplates", "resourceclaims"):
        command = ("auth", "can-i", "create", resource, "-n", namespace)
        assert cluster.kubectl(*command, check=False, kubeconfig=user).stdout.strip() == "no"
    forged = printed(cluster, namespace, SHARE)
    apply_quota(cluster, namespace, **{f"requests.{GPU}": "0"})

    honest, attack = (
        create(cluster, namespace, document, user=user) for document in (SHARE, forged)
    )

    for status, words in (honest, attack):
        assert status == 1
        assert f"ResourceQuota gpus counts requests.{GPU}" in words
    assert f"metadata.annotations[{REQUEST_ANNOTATION}]" in attack[1]
    assert_nothing_was_made(cluster, namespace)


def test_other_keys_for_the_same_devices_are_no_way_around_a_quota(
    cluster: Access, namespace: str
) -> None:
    user = add_user(cluster, namespace, PODS_ONLY)
    apply_quota(cluster, namespace, **{f"requests.{GPU}": "0"})
    koordinator = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory": "8Gi"}

    status, words = create(
        cluster, namespace, pod("other", limits=koordinator), "--dry-run=server", user=user
    )

    assert status == 1
    assert f"counts requests.{GPU}, which also stands for devices of {HAMI}" in words


def by_implicit_name(section: str = "limits", field: str = "containers", **spec: Any) -> Object:
    """A pod that requests a device of HAMi's class by the implicit name of it (KEP-5004)."""
    document = pod("implicit", **spec)
    amounts = {section: {f"deviceclass.resource.kubernetes.io/{HAMI}": "1"}}
    main = document["spec"]["containers"][0]
    document["spec"][field] = [{**main, "name": "asks", "resources": amounts}]
    if field != "containers":
        document["spec"]["containers"] = [main]
    return document


OPTED_OUT_OF_EVERYTHING = by_implicit_name(schedulerName="other")
OPTED_OUT_OF_EVERYTHING["metadata"]["labels"] = {
    TRANSLATE_LABEL: "false",
    "hami.io/webhook": "ignore",
}
BY_IMPLICIT_NAME = {
    "in limits": by_implicit_name(),
    "in requests alone": by_implicit_name("requests"),
    "in an init container": by_implicit_name(field="initContainers"),
    "in a pod that opts out": OPTED_OUT_OF_EVERYTHING,
}


def test_the_implicit_name_of_a_class_is_no_way_around_a_quota(
    cluster: Access, namespace: str
) -> None:
    user = add_user(cluster, namespace, PODS_ONLY)
    for name, document in BY_IMPLICIT_NAME.items():
        status, words = create(cluster, namespace, document, "--dry-run=server", user=user)
        assert (status, words) == (0, ""), f"without a quota, {name}"
    apply_quota(cluster, namespace, **{f"requests.{GPU}": "0"})

    for name, document in BY_IMPLICIT_NAME.items():
        status, words = create(cluster, namespace, document, "--dry-run=server", user=user)

        assert status == 1, name
        assert f"counts requests.{GPU}, which also stands for devices of {HAMI}" in words, name

    # Amounts of the whole pod have no such names.
    of_the_pod = pod("whole", resources=by_implicit_name()["spec"]["containers"][0]["resources"])
    status, words = create(cluster, namespace, of_the_pod, "--dry-run=server", user=user)
    assert status == 1
    assert "Unsupported value" in words


@pytest.mark.parametrize(
    "counted",
    [f"requests.deviceclass.resource.kubernetes.io/{HAMI}", f"{HAMI}.deviceclass.resource.k8s.io/devices"],
    ids=["by the name", "by the class"],
)  # fmt: skip
def test_a_quota_that_counts_a_class_counts_its_implicit_name(
    cluster: Access, namespace: str, counted: str
) -> None:
    """So Kubernetes serves the pod, as it is, and the next one exceeds the quota."""
    user = add_user(cluster, namespace, PODS_ONLY)
    apply_quota(cluster, namespace, **{f"requests.{GPU}": "0"})
    patch = json.dumps({"spec": {"hard": {counted: "1"}}})
    cluster.kubectl("patch", "resourcequota", "gpus", "-n", namespace, "--type=merge", "-p", patch)
    cluster.wait_until(
        lambda: create(cluster, namespace, by_implicit_name(), "--dry-run=server")[0] == 0,
        "the webhook knows of the quota",
    )

    assert create(cluster, namespace, by_implicit_name(), user=user)[0] == 0
    running = cluster.wait_running("implicit", namespace)
    used = cluster.wait_for(
        "resourcequotas",
        "gpus",
        namespace,
        until=lambda quota: quota["status"]["used"][counted] == "1",
    )["status"]["used"]

    (container,) = running["spec"]["containers"]
    assert container["resources"]["limits"] == {f"deviceclass.resource.kubernetes.io/{HAMI}": "1"}
    assert REQUEST_ANNOTATION not in running["metadata"].get("annotations", {})
    assert used[counted] == "1"
    (claim,) = cluster.objects("resourceclaims", namespace)
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    assert result["driver"] == HAMI


def test_a_driver_that_the_settings_do_not_name_cannot_be_chosen(
    cluster: Access, namespace: str
) -> None:
    forged = printed(cluster, namespace, SHARE, "--profile", "hami=gpu.example.com")

    status, words = create(cluster, namespace, forged, "--dry-run=server")

    assert status == 1
    assert f"vocabulary hami is served by {HAMI} here, not by gpu.example.com" in words


def test_a_pod_that_opts_out_gets_no_template(cluster: Access, namespace: str) -> None:
    user = add_user(cluster, namespace, PODS_ONLY)
    forged = printed(cluster, namespace, SHARE)
    forged["metadata"]["labels"] = {TRANSLATE_LABEL: "false"}

    status, words = create(cluster, namespace, forged, user=user)

    assert status == 0
    assert "drawbridge[translationNotSigned]" in words
    cluster.wait_until(
        lambda: "TranslationNotSigned" in events_of(cluster, namespace, "share"),
        "the pod is told that nobody creates its template",
    )
    assert_nothing_was_made(cluster, namespace)


@pytest.mark.long
def test_a_vocabulary_can_be_turned_off(
    cluster: Access, drawbridge: Drawbridge, namespace: str, tmp_path: Path
) -> None:
    chosen = {"translation": {"vocabularies": ["nvidia", "hami"]}}
    other = pod("other", limits={"koordinator.sh/gpu-core": 50, "koordinator.sh/gpu-memory": "8Gi"})
    forged = printed(cluster, namespace, other)
    (tmp_path / "settings.json").write_text(json.dumps(chosen))

    stdout = subprocess.run(
        [sys.executable, "-m", "webhook", "--print-configuration"],
        cwd=ROOT,
        env={**cluster.environment(), "DRAWBRIDGE_CONFIG": str(tmp_path / "settings.json")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    with drawbridge.configured(chosen):
        dry_run_ = dry_run(cluster, namespace, other)
        status, words = create(cluster, namespace, forged, "--dry-run=server")
        translated = dry_run(cluster, namespace, SHARE)

    assert GPU in stdout
    assert "koordinator.sh/gpu" not in stdout
    assert "resourceClaims" not in dry_run_["spec"]
    assert status == 1
    assert 'records "koordinator.sh/gpu-core", which is not translated here' in words
    assert legacy_keys(translated) == set()


# --- signatures -----------------------------------------------------------------------------------


@pytest.fixture
def unreviewed(cluster: Access, namespace: str) -> str:
    """A namespace with pods that nobody sends to the webhook."""
    opt_out(cluster, namespace)
    return namespace


def unsigned_pods(drawbridge: Drawbridge, reason: str) -> int:
    """Return the number of pods without a valid signature that the controller has seen since its start."""
    line = rf'^drawbridge_unsigned_pods_total{{reason="{reason}"}} (\S+)$'
    outcome = re.search(line, drawbridge.metrics(CONTROLLER), re.MULTILINE)
    return int(float(outcome[1])) if outcome else 0


@pytest.mark.parametrize("user", [PODS_ONLY, EDITOR])
def test_a_forged_annotation_where_nobody_reviews_gets_no_template(
    cluster: Access, drawbridge: Drawbridge, workshop: str, unreviewed: str, user: str
) -> None:
    attacker = add_user(cluster, unreviewed, user)
    before = unsigned_pods(drawbridge, "missing")
    forged = printed(cluster, workshop, SHARE)

    assert create(cluster, unreviewed, forged, user=attacker) == (0, "")

    cluster.wait_until(
        lambda: "TranslationNotSigned" in events_of(cluster, unreviewed, "share"),
        "the pod is told that nobody creates its template",
    )
    assert unsigned_pods(drawbridge, "missing") > before
    assert_nothing_was_made(cluster, unreviewed)


@pytest.fixture
def signed(cluster: Access, stage: str) -> Object:
    """A pod that the webhook signed, in another namespace."""
    pod_ = pod("signed", limits={GPU: 1, MEMORY: 4000}, schedulingGates=GATED)
    if cluster.find("pods", "signed", stage) is None:
        assert create(cluster, stage, pod_) == (0, "")
    return cluster.get("pods", "signed", stage)


def test_a_signature_is_of_no_use_in_another_namespace(
    cluster: Access, drawbridge: Drawbridge, signed: Object, unreviewed: str
) -> None:
    user = add_user(cluster, unreviewed, PODS_ONLY)
    before = unsigned_pods(drawbridge, "mismatch")

    assert create(cluster, unreviewed, copied(signed, "copy"), user=user) == (0, "")

    cluster.wait_until(
        lambda: "TranslationNotSigned" in events_of(cluster, unreviewed, "copy"),
        "the pod is told that nobody creates its template",
    )
    assert unsigned_pods(drawbridge, "mismatch") > before
    assert_nothing_was_made(cluster, unreviewed)


def test_a_signature_is_of_no_use_for_more_claims(
    cluster: Access, namespace: str, drawbridge: Drawbridge
) -> None:
    """The webhook signs one claim; without a review, the pod asks for two of the template."""
    pod_ = pod("share", limits={GPU: 1, MEMORY: 4000}, schedulingGates=GATED)
    assert create(cluster, namespace, pod_) == (0, "")
    value = cluster.get("pods", "share", namespace)
    name = template_of(value)
    cluster.wait_for("resourceclaimtemplates", name, namespace)
    opt_out(cluster, namespace)
    cluster.kubectl("delete", "-n", namespace, "pod", "share", "--force")
    cluster.wait_gone("resourceclaimtemplates", name, namespace)
    two = copied(value, "two")
    (entry,) = two["spec"]["resourceClaims"]
    two["spec"]["resourceClaims"] = [entry, {**entry, "name": "again"}]

    assert create(cluster, namespace, two) == (0, "")

    cluster.wait_until(
        lambda: "TranslationNotSigned" in events_of(cluster, namespace, "two"),
        "the pod is told that nobody creates its template",
    )
    assert cluster.objects("resourceclaimtemplates", namespace) == []


def test_a_pod_is_served_when_its_namespace_is_taken_out_later(
    cluster: Access, namespace: str
) -> None:
    pod_ = pod("share", limits={GPU: 1, MEMORY: 4000}, schedulingGates=GATED)
    assert create(cluster, namespace, pod_) == (0, "")
    name = template_of(cluster.get("pods", "share", namespace))
    cluster.wait_for("resourceclaimtemplates", name, namespace)

    opt_out(cluster, namespace)
    cluster.kubectl("delete", "-n", namespace, "resourceclaimtemplate", name)

    cluster.wait_for("resourceclaimtemplates", name, namespace)
    patch_text = json.dumps({"spec": {"schedulingGates": None}})
    cluster.kubectl("patch", "-n", namespace, "pod", "share", "--type=merge", "-p", patch_text)
    running = cluster.wait_running("share", namespace)
    (device,) = devices(running, cluster.objects("resourceclaims", namespace))["main"]
    assert device.amounts == {"memory": Quantity("4000Mi"), "cores": Quantity(0)}


def test_a_rotated_key_still_verifies_the_pods_that_it_signed(
    cluster: Access, drawbridge: Drawbridge, namespace: str
) -> None:
    pod_ = pod("share", limits={GPU: 1, MEMORY: 4000}, schedulingGates=GATED)
    assert create(cluster, namespace, pod_) == (0, "")
    first = cluster.get("pods", "share", namespace)
    name = template_of(first)
    cluster.wait_for("resourceclaimtemplates", name, namespace)
    secret = ("-n", drawbridge.namespace, "secret", SIGNING_SECRET)

    cluster.kubectl("annotate", *secret, f"{ROTATE_ANNOTATION}=now")

    def key_of(translated: Object) -> str:
        text: str = translated["metadata"]["annotations"][SIGNATURE_ANNOTATION]
        return text.split(".")[1]

    cluster.wait_until(
        lambda: (
            key_of(dry_run(cluster, namespace, SHARE | {"metadata": {"name": "other"}}))
            != key_of(first)
        ),
        "the webhook signs with the new key",
    )
    cluster.kubectl("delete", "-n", namespace, "resourceclaimtemplate", name)
    cluster.wait_for("resourceclaimtemplates", name, namespace)


def test_a_dry_run_is_signed_and_leaves_nothing(cluster: Access, workshop: str) -> None:
    dry_run_ = dry_run(cluster, workshop, SHARE)

    assert SIGNATURE_ANNOTATION in dry_run_["metadata"]["annotations"]
    assert cluster.find("resourceclaimtemplates", template_of(dry_run_), workshop) is None


@pytest.mark.parametrize("user", [PODS_ONLY, EDITOR, NOBODY])
def test_the_keys_are_nobodys_to_read(
    cluster: Access, drawbridge: Drawbridge, namespace: str, user: str
) -> None:
    kubeconfig = add_user(cluster, namespace, user)
    command = ("get", "secret", "-n", drawbridge.namespace, SIGNING_SECRET)

    output = cluster.kubectl(*command, check=False, kubeconfig=kubeconfig)

    assert "forbidden" in output.stderr


def test_an_annotation_that_is_to_change_all_the_time_is_one_event(
    cluster: Access, unreviewed: str
) -> None:
    user = add_user(cluster, unreviewed, PODS_ONLY)
    waiting = pod("noisy", claims={"gpu": "never"}, annotations={REQUEST_ANNOTATION: "0"})
    assert create(cluster, unreviewed, waiting, user=user) == (0, "")
    path = f"/api/v1/namespaces/{unreviewed}/pods/noisy"
    for number in range(1, 100):
        patch = {"metadata": {"annotations": {REQUEST_ANNOTATION: str(number)}}}
        media_type = "application/merge-patch+json"
        status, answer = cluster.request("PATCH", path, patch, content_type=media_type)
        assert status >= 400, answer
        assert "translationRecordChanged" in str(answer)
    cluster.wait_until(
        lambda: "TranslationNotSigned" in events_of(cluster, unreviewed, "noisy"),
        "the pod is told that nobody creates its template",
    )

    events = [
        object_
        for object_ in cluster.objects("events", unreviewed)
        if object_["reason"] == "TranslationNotSigned"
    ]
    assert len(events) == 1


def test_an_annotation_that_a_binding_adds_gets_no_template(
    cluster: Access, workshop: str, namespace: str
) -> None:
    """A scheduler may bind, and `pods/binding` merges its annotations, past any webhook for pods."""
    forged = printed(cluster, workshop, SHARE)
    victim = pod("plain", claims={"gpu": template_of(forged)}, schedulerName="nobody.internal")
    assert create(cluster, namespace, victim) == (0, "")
    binding = api_object(
        "Binding",
        "plain",
        annotations=forged["metadata"]["annotations"],
        target={"kind": "Node", "name": "hami-0"},
    )

    status, body = cluster.request(
        "POST", f"/api/v1/namespaces/{namespace}/pods/plain/binding", binding
    )

    assert status == 201, body
    bound = cluster.get("pods", "plain", namespace)
    assert REQUEST_ANNOTATION in bound["metadata"]["annotations"]
    cluster.wait_until(
        lambda: "TranslationNotSigned" in events_of(cluster, namespace, "plain"),
        "the pod is told that nobody creates its template",
    )
    assert_nothing_was_made(cluster, namespace)


# --- policies that change claims ------------------------------------------------------------------


@pytest.fixture
def tolerating(cluster: Access, namespace: str) -> Iterator[Callable[[], bool]]:
    """A MutatingAdmissionPolicy that adds a toleration to each claim of the namespace."""
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": namespace}}
    claims = {
        "apiGroups": ["resource.k8s.io"],
        "apiVersions": ["v1"],
        "resources": ["resourceclaims"],
    }
    expression = (
        '[JSONPatch{op: "add", path: "/spec/devices/requests/0/exactly/tolerations", '
        'value: [{"key": "story.internal/any", "operator": "Exists"}]}]'
    )
    spec = {
        "matchConstraints": {"resourceRules": [{**claims, "operations": ["CREATE"]}]},
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
    }
    here = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    binding = {"policyName": namespace, "matchResources": {"namespaceSelector": here}}
    cluster.apply(
        [
            {**head, "kind": "MutatingAdmissionPolicy", "spec": spec},
            {**head, "kind": "MutatingAdmissionPolicyBinding", "spec": binding},
        ]
    )

    def in_force() -> bool:
        spec = claim_template("probe", HAMI)["spec"]["spec"]
        claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
        dry_run_ = dry_run(cluster, namespace, {**claim, "metadata": {"name": "p"}, "spec": spec})
        return "tolerations" in dry_run_["spec"]["devices"]["requests"][0]["exactly"]

    cluster.wait_until(in_force, "the policy is in force")
    yield in_force
    for kind in ("mutatingadmissionpolicybinding", "mutatingadmissionpolicy"):
        cluster.kubectl("delete", kind, namespace)


@pytest.mark.usefixtures("tolerating")
def test_a_policy_that_changes_claims_is_not_fought(cluster: Access, namespace: str) -> None:
    # A claim that waits for a device is free, and so could be deleted again and again.
    waiting = pod(
        "share", limits={GPU: 1, MEMORY: 4000}, nodeSelector={"story.internal/no": "node"}
    )
    assert create(cluster, namespace, waiting) == (0, "")

    cluster.wait_until(
        lambda: "ResourceClaimAltered" in events_of(cluster, namespace, "share"),
        "the pod is told of the policy",
    )

    (claim,) = cluster.objects("resourceclaims", namespace)
    assert "ResourceClaimReplaced" not in events_of(cluster, namespace, "share")
    # And it stays: the pod keeps the claim that it has.
    cluster.kubectl("annotate", "-n", namespace, "pod", "share", "story.internal/touch=1")
    (later,) = cluster.objects("resourceclaims", namespace)
    assert later["metadata"]["uid"] == claim["metadata"]["uid"]


@pytest.mark.long
def test_a_template_that_is_kept_alive_under_a_quota_is_reported(
    cluster: Access, drawbridge: Drawbridge, namespace: str
) -> None:
    """Kubernetes lets every pod of a namespace name a template, and a quota of a key counts no claims."""
    user = add_user(cluster, namespace, PODS_ONLY)
    assert create(cluster, namespace, SHARE, user=user)[0] == 0
    template = template_of(cluster.wait_running("share", namespace))
    apply_quota(cluster, namespace, **{f"requests.{GPU}": "0"})
    keeper = pod("keeper", claims={"gpu": template})
    assert create(cluster, namespace, keeper, user=user)[0] == 0
    cluster.delete("pod", "share", namespace)
    cluster.wait_running("keeper", namespace)

    def listed() -> bool:
        lines = map(json.loads, drawbridge.log(CONTROLLER).splitlines())
        return any(
            line.get("event") == "claims.not_seen"
            and line["object"] == f"{namespace}/gpus"
            and template in line["message"]
            for line in lines
        )

    cluster.wait_until(listed, "the audit lists quota and template")
    checked = command_line(
        cluster, "check", "-f", "-", "--live", "-n", namespace, "-o", "json",
        input=stream(pod("plain")),
    )  # fmt: skip
    (finding,) = (
        finding
        for finding in json.loads(checked.stdout)["findings"]
        if finding["code"] == "templateNotCounted"
    )
    assert finding["object"] == f"ResourceQuota/{namespace}/gpus"
    assert f"{template} gets devices of {HAMI}" in finding["message"]


def test_the_audit_lists_a_policy_that_does_not_see_claims(
    cluster: Access, drawbridge: Drawbridge, namespace: str
) -> None:
    """One GPU per container, says the policy; a translated pod has none that it could count."""
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": namespace}}
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    expression = (
        "object.spec.containers.all(c, !has(c.resources) || !has(c.resources.limits) || "
        f"!('{GPU}' in c.resources.limits) || int(c.resources.limits['{GPU}']) <= 1)"
    )
    spec = {
        "matchConstraints": {"resourceRules": [{**pods, "operations": ["CREATE"]}]},
        "validations": [{"expression": expression}],
    }

    cluster.apply({**head, "kind": "ValidatingAdmissionPolicy", "spec": spec})

    def listed() -> bool:
        lines = map(json.loads, drawbridge.log(CONTROLLER).splitlines())
        return any(
            line.get("event") == "claims.not_seen" and line["object"] == namespace for line in lines
        )

    cluster.wait_until(listed, "the audit lists the policy")
    cluster.kubectl("delete", "validatingadmissionpolicy", namespace)
