"""The controllers are killed before and after each write, by its name; the next one ends it well."""

import base64
import http.client
import itertools
import json
import signal
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pytest
import yaml

from e2e.access import Access, Object
from e2e.drawbridge import CERTIFICATES, CONTROLLER, ROOT, Drawbridge
from e2e.fleet import translation_profile
from e2e.inventory import HAMI
from e2e.killed_mid_write import Moment, Order
from e2e.objects import claim_template, pod
from e2e.processes import Child, log_tails
from e2e.translated import legacy_keys
from e2e.writes import CERTIFICATE_WRITES, CONTROLLER_WRITES
from kube.names import (
    CONFIGURATION,
    MANAGED_LABEL,
    REQUEST_ANNOTATION,
    ROTATE_ANNOTATION,
    SIGNATURE_ANNOTATION,
    TRANSLATE_LABEL,
)
from process.certificates.signing import KEYS as SIGNING_KEYS
from process.certificates.webhook_paths import PATH_KEYS

pytestmark = pytest.mark.usefixtures("fleet")

TIMEOUT_S: Final = 90.0
PACKAGES: Final = {CERTIFICATES: "controllers.certificates", CONTROLLER: "controllers"}
HASTY: Final = {
    "certificates": {
        "resyncPeriod": "200ms",
        "servingDuration": "45s",
        "authorityPublishPeriod": "300ms",
        "authorityExpeditedPublishPeriod": "300ms",
        "pathKeyGracePeriod": "300ms",
    },
    "controllers": {"templateUnusedPeriod": "1s"},
}
POLICY_DRIVER: Final = "fault.example.com"
PROFILE_DRIVER: Final = "npu.fault.example.com"
MOMENTS: Final = ("before", pytest.param("after", marks=pytest.mark.long))


class Write(NamedTuple):
    """A write of `e2e.writes`, and a text in it if a function writes several things."""

    name: str
    part: str = ""

    def __str__(self) -> str:
        return " ".join((*self.name.split(".")[-2:], self.part)).strip()


class Stage:
    """The cluster, and two processes with a settable place to die."""

    def __init__(self, cluster: Access, drawbridge: Drawbridge, namespace: str) -> None:
        self.cluster = cluster
        self.drawbridge = drawbridge
        self.namespace = namespace
        self._numbers = itertools.count()

    # --- death -----------------------------------------------------------------------------------

    def start(self, process: str) -> None:
        """Replace a process by one with a settable place to die."""
        self.drawbridge.stop(process)
        command = (
            sys.executable,
            "-m",
            "e2e.killed_mid_write",
            PACKAGES[process],
            str(self._order(process)),
        )
        self.drawbridge.start(process, command=command)

    def child(self, process: str) -> Child:
        return self.cluster.children[process]

    def arm(self, process: str, order: Order) -> None:
        partial = self._order(process).with_suffix(".partial")
        partial.write_bytes(msgspec.json.encode(order))
        partial.rename(self._order(process))

    def wait_death(self, process: str) -> None:
        """Wait until a process has obeyed its order; a failure shows the end of its log."""
        try:
            self.wait_until(lambda: not self._order(process).exists(), f"{process} has died")
        except AssertionError as error:
            child = self.child(process)
            error.add_note(f"exit status: {child.exit_status}")
            error.add_note(log_tails([child], lines=40))
            raise

    def disarm(self, process: str) -> None:
        self._order(process).unlink(missing_ok=True)

    def _order(self, process: str) -> Path:
        return self.cluster.directory / f"{process}.order"

    # --- the cluster -----------------------------------------------------------------------------

    def wait_until(self, condition: Callable[[], object], description: str) -> None:
        self.cluster.wait_until(condition, description, timeout_s=TIMEOUT_S)

    def delete(self, kind: str, name: str, namespace: str | None = None) -> None:
        """Delete an object at once; fine when there is none."""
        path = self.cluster.kind(kind).path(namespace or "default", name)
        status, answer = self.cluster.request("DELETE", f"{path}?gracePeriodSeconds=0")
        assert status in {http.client.OK, http.client.ACCEPTED, http.client.NOT_FOUND}, answer

    def delete_lease(self, process: str) -> None:
        """Have the next process lead at once, not after the life of the Lease."""
        self.delete("leases.coordination.k8s.io", process, self.drawbridge.namespace)

    def new_pod(self, **fields: Any) -> Object:
        """A pod with a template that no other pod has."""
        number = next(self._numbers)
        limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 200 + number}
        return pod(f"pod-{number}", limits=limits, **fields)

    def create(self, document: Object, namespace: str = "", *, dry_run: bool = False) -> Object:
        """Create a pod; it must not be refused, and must be translated if it has keys."""
        path = self.cluster.kind("pods").path(namespace or self.namespace)
        query = "?dryRun=All" if dry_run else ""
        status, answer = self.cluster.request("POST", f"{path}{query}", document)
        assert status == http.client.CREATED, answer
        created: Object = json.loads(answer)
        assert not legacy_keys(created)
        return created

    def admit(self) -> Object:
        """Admit a pod now, with any process dead."""
        return self.create(self.new_pod(), dry_run=True)

    def run_pod(self) -> Object:
        """Have a pod with a new template run."""
        created = self.create(self.new_pod())
        name = created["metadata"]["name"]
        return self.cluster.wait_running(name, self.namespace, timeout_s=TIMEOUT_S)

    def secret(self, name: str) -> Object | None:
        return self.cluster.find("secrets", name, self.drawbridge.namespace)

    def value(self, name: str, key: str) -> bytes:
        """Return the value of a Secret's key; empty if there is none."""
        secret = self.secret(name) or {}
        return base64.b64decode((secret.get("data") or {}).get(key, ""))

    def patch(self, kind: str, name: str, patch: object, namespace: str | None = None) -> None:
        """Patch an object: a list is a JSON Patch, a map a merge patch."""
        path = self.cluster.kind(kind).path(namespace or "default", name)
        type_ = "json-patch" if isinstance(patch, list) else "merge-patch"
        status, answer = self.cluster.request(
            "PATCH", path, patch, content_type=f"application/{type_}+json"
        )
        assert status == http.client.OK, answer

    def trusted(self) -> int:
        """Return the number of authorities that the API server trusts."""
        bundle = base64.b64decode(self.drawbridge.client_config().get("caBundle", ""))
        return bundle.count(b"BEGIN CERTIFICATE")


Steps = Generator[None, None, None]
Cause = Callable[[Stage], Steps]


@pytest.fixture(scope="module")
def stage_of_kills(cluster: Access, drawbridge: Drawbridge, stage: str) -> Iterator[Stage]:
    scene = Stage(cluster, drawbridge, stage)
    with drawbridge.configured(HASTY):
        for process in PACKAGES:
            scene.start(process)
        drawbridge.wait_ready()
        try:
            yield scene
            for process in PACKAGES:
                scene.disarm(process)
            # What other stories count on: one authority.
            scene.wait_until(lambda: scene.trusted() == 1, "old authorities are forgotten")
        finally:
            for process in PACKAGES:
                scene.disarm(process)


# --- what causes a write, and what is right afterwards --------------------------------------------
# Each prepares, causes the write after its first `yield`, and checks the outcome after its second.


def lost_secret(name: str, key: str) -> Callable[[Stage], Steps]:
    """A Secret is deleted, and created again."""

    def steps(stage: Stage) -> Steps:
        yield
        before = stage.secret(name)
        assert before is not None
        stage.delete("secrets", name, stage.drawbridge.namespace)
        yield
        stage.admit()
        stage.wait_until(lambda: stage.value(name, key), f"the Secret {name} is back")
        after = stage.secret(name)
        assert after is not None
        assert before["metadata"]["uid"] != after["metadata"]["uid"]
        stage.admit()

    return steps


def damaged_secret(name: str, key: str) -> Callable[[Stage], Steps]:
    """A Secret holds garbage, and is repaired."""
    garbage = b"garbage"

    def steps(stage: Stage) -> Steps:
        yield
        data = {key: base64.b64encode(garbage).decode()}
        stage.patch("secrets", name, {"data": data}, stage.drawbridge.namespace)
        yield
        stage.admit()
        stage.wait_until(
            lambda: stage.value(name, key) not in {b"", garbage}, f"the Secret {name} is repaired"
        )
        stage.admit()

    return steps


def requested_rotation(name: str, key: str) -> Callable[[Stage], Steps]:
    """A rotation is requested of a Secret; it is made, and the request taken away."""

    def steps(stage: Stage) -> Steps:
        before = stage.value(name, key)
        yield
        annotations = {"metadata": {"annotations": {ROTATE_ANNOTATION: "now"}}}
        stage.patch("secrets", name, annotations, stage.drawbridge.namespace)
        yield
        stage.admit()

        def is_rotated() -> bool:
            secret = stage.secret(name) or {"metadata": {}}
            requested = ROTATE_ANNOTATION in secret["metadata"].get("annotations", {})
            return not requested and stage.value(name, key) != before

        stage.wait_until(is_rotated, f"{name} is rotated")
        stage.admit()

    return steps


def signing_key_known(steps: Callable[[Stage], Steps]) -> Callable[[Stage], Steps]:
    """The same, and then pods are signed with a key that is stored, and run."""

    def longer(stage: Stage) -> Steps:
        yield from steps(stage)

        def is_signed() -> bool:
            signature = stage.admit()["metadata"]["annotations"][SIGNATURE_ANNOTATION]
            return signature.split(".")[1].encode() in stage.value(SIGNING, SIGNING_KEYS)

        stage.wait_until(is_signed, "pods are signed with a key that exists")
        stage.run_pod()

    return longer


def altered_configuration(field: str) -> Callable[[Stage], Steps]:
    """A field of the webhook of pods is taken away, and written again."""

    def steps(stage: Stage) -> Steps:
        index, webhook = webhook_of_pods(stage)
        yield
        operation: Object = {"op": "remove", "path": f"/webhooks/{index}/{field}"}
        if field == "clientConfig/url":
            url = webhook["clientConfig"]["url"].rpartition("/")[0]
            operation |= {"op": "replace", "value": url}
        stage.patch("mutatingwebhookconfigurations", CONFIGURATION, [operation])
        yield
        stage.drawbridge.wait_ready()
        assert webhook["rules"] == webhook_of_pods(stage)[1]["rules"]
        stage.wait_until(lambda: admits(stage), "pods are translated again")

    return steps


def webhook_of_pods(stage: Stage) -> tuple[int, Object]:
    """The webhook of pods and its place."""
    webhooks = stage.cluster.get("mutatingwebhookconfigurations", CONFIGURATION)["webhooks"]
    (place,) = (
        (index, webhook)
        for index, webhook in enumerate(webhooks)
        if webhook["name"] == "pods.drawbridge.internal"
    )
    return place


def admits(stage: Stage) -> bool:
    """Return True if a pod is admitted and translated; an API server reads a configuration a little later."""
    path = f"{stage.cluster.kind('pods').path(stage.namespace)}?dryRun=All"
    status, answer = stage.cluster.request("POST", path, stage.new_pod())
    return status == http.client.CREATED and not legacy_keys(json.loads(answer))


@contextmanager
def stopped(child: Child) -> Iterator[None]:
    """A process does nothing for a while."""
    child.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        child.signal(signal.SIGCONT)


def waiting_pod(stage: Stage) -> Steps:
    """A pod waits for its template."""
    yield
    created = stage.create(stage.new_pod())
    yield
    name = created["metadata"]["name"]
    stage.cluster.wait_running(name, stage.namespace, timeout_s=TIMEOUT_S)
    assert_served(stage, created)


def assert_served(stage: Stage, created: Object) -> None:
    """The pod has one claim, made of its template; that is ours and the only one of its content."""
    (entry,) = created["spec"]["resourceClaims"]
    template = stage.cluster.get(
        "resourceclaimtemplates", entry["resourceClaimTemplateName"], stage.namespace
    )
    assert MANAGED_LABEL in template["metadata"]["labels"]
    claims = [
        claim
        for claim in stage.cluster.objects("resourceclaims", stage.namespace)
        if claim["metadata"]["ownerReferences"][0]["uid"] == created["metadata"]["uid"]
    ]
    assert [template["spec"]["spec"]] == [claim["spec"] for claim in claims]


def poisoned_template(stage: Stage) -> Steps:
    """A template of the pod's name has other content, and a claim was made of it."""
    child = stage.child(CONTROLLER)
    with stopped(child):
        created = stage.create(stage.new_pod())
        (entry,) = created["spec"]["resourceClaims"]
        poison = claim_template(entry["resourceClaimTemplateName"], "dearer.internal")
        path = stage.cluster.kind("resourceclaimtemplates").path(stage.namespace)
        status, answer = stage.cluster.request("POST", path, poison)
        assert status == http.client.CREATED, answer
        name = created["metadata"]["name"]
        stage.cluster.wait_for(
            "pods",
            name,
            stage.namespace,
            until=lambda live: "resourceClaimStatuses" in live["status"],
            timeout_s=TIMEOUT_S,
        )
        yield
    yield
    stage.cluster.wait_running(name, stage.namespace, timeout_s=TIMEOUT_S)
    assert_served(stage, created)


def unused_template(stage: Stage) -> Steps:
    """A template is not used any more."""
    running = stage.run_pod()
    (entry,) = running["spec"]["resourceClaims"]
    yield
    stage.delete("pods", running["metadata"]["name"], stage.namespace)
    yield
    template = entry["resourceClaimTemplateName"]
    stage.wait_until(
        lambda: stage.cluster.find("resourceclaimtemplates", template, stage.namespace) is None,
        "the template is collected",
    )


def lowered_mark(stage: Stage) -> Steps:
    """The high-water mark is lower than the inventory."""
    target = ("configmaps", "drawbridge-inventory")
    stage.cluster.wait_for(*target, stage.drawbridge.namespace, timeout_s=TIMEOUT_S)
    yield
    stage.patch(*target, {"data": {"seen": "{}"}}, stage.drawbridge.namespace)
    yield
    stage.wait_until(
        lambda: HAMI in stage.cluster.get(*target, stage.drawbridge.namespace)["data"]["seen"],
        "the mark is raised",
    )


def lost_mark(stage: Stage) -> Steps:
    """The high-water mark is gone."""
    target = ("configmaps", "drawbridge-inventory", stage.drawbridge.namespace)
    stage.cluster.wait_for(*target, timeout_s=TIMEOUT_S)
    yield
    stage.delete(*target)
    yield
    after = stage.cluster.wait_for(*target, timeout_s=TIMEOUT_S)
    assert HAMI in after["data"]["seen"]


def new_policy(stage: Stage) -> Steps:
    """A policy has no status yet."""
    (document,) = yaml.load_all(
        (ROOT / "examples/compatibility/policy.yaml").read_text(), Loader=yaml.CSafeLoader
    )
    document["metadata"] = {"name": "fault"}
    document["spec"]["driver"] = POLICY_DRIVER
    yield
    stage.cluster.apply(document)
    yield
    stage.cluster.wait_for(
        "dcp",
        "fault",
        until=lambda policy: policy.get("status", {}).get("conditions"),
        timeout_s=TIMEOUT_S,
    )
    stage.delete("dcp", "fault")


def edited_profile(stage: Stage) -> Steps:
    """A profile lists one more resource."""
    stage.cluster.apply(translation_profile(PROFILE_DRIVER))
    wait_for_profile(stage, "example.com/npu-large")
    yield
    stage.cluster.apply(translation_profile(PROFILE_DRIVER, **{"example.com/npu-more": {}}))
    yield
    wait_for_profile(stage, "example.com/npu-more")
    stage.delete("dtp", PROFILE_DRIVER)


def lost_profiles(stage: Stage) -> Steps:
    """The versions of profiles are gone, those that live pods name among them."""
    target = ("configmaps", "drawbridge-profiles", stage.drawbridge.namespace)
    stage.cluster.apply(translation_profile(PROFILE_DRIVER))
    wait_for_profile(stage, "example.com/npu-large")
    yield
    stage.delete(*target)
    yield
    stage.cluster.wait_for(*target, timeout_s=TIMEOUT_S)
    wait_for_profile(stage, "example.com/npu-large")
    stage.delete("dtp", PROFILE_DRIVER)


def wait_for_profile(stage: Stage, resource: str) -> None:
    """Wait until the status tells of a resource of the profile; assert that it is published."""
    stage.cluster.wait_for(
        "dtp",
        PROFILE_DRIVER,
        until=lambda profile: resource in repr(profile.get("status")),
        timeout_s=TIMEOUT_S,
    )
    published = stage.cluster.get("configmaps", "drawbridge-profiles", stage.drawbridge.namespace)
    assert resource in "".join(published["data"].values())


def unsigned_pod(stage: Stage) -> Steps:
    """A pod waits for a template that nobody signed: an event says so."""
    namespace = f"{stage.namespace}-opted-out"
    if stage.cluster.find("namespaces", namespace) is None:
        labels = {"labels": {TRANSLATE_LABEL: "false"}}
        head = {"apiVersion": "v1", "kind": "Namespace"}
        stage.cluster.apply({**head, "metadata": {"name": namespace, **labels}})
        stage.cluster.wait_for("serviceaccounts", "default", namespace)
    yield
    document = stage.new_pod()
    annotations = {REQUEST_ANNOTATION: "{}"}
    garbage = pod(document["metadata"]["name"], claims={"gpu": "none"}, annotations=annotations)
    created = stage.create(garbage, namespace)
    yield

    def events() -> list[Object]:
        return [
            event
            for event in stage.cluster.objects("events", namespace)
            if event["involvedObject"].get("uid") == created["metadata"]["uid"]
            and event["reason"] == "TranslationNotSigned"
        ]

    stage.wait_until(events, "the event is there")
    stage.delete("pods", created["metadata"]["name"], namespace)
    assert len(events()) == 1


def lost_lease(stage: Stage) -> Steps:
    """The Lease is gone."""
    # The process that follows the one that died may be about to make it, and had no order yet.
    lease = ("leases.coordination.k8s.io", CONTROLLER, stage.drawbridge.namespace)
    stage.cluster.wait_for(*lease, timeout_s=TIMEOUT_S)
    yield
    stage.delete_lease(CONTROLLER)
    yield
    stage.run_pod()


def renewed_lease(stage: Stage) -> Steps:
    """The Lease is renewed all the time."""
    yield
    yield
    stage.run_pod()


AUTHORITY, SERVING = "drawbridge-ca", "drawbridge-webhook-tls"
PATHS, SIGNING = "drawbridge-webhook-path", "drawbridge-signing"
_CERTIFICATES: Final = "controllers.certificates.controller.CertificateController"
_SIGNING: Final = "controllers.certificates.signing_keys.SigningKeyController"
_PATHS: Final = "controllers.certificates.path_secret.PathSecret"
_PROFILES: Final = "controllers.profiles.controller.ProfileController"
_TEMPLATES: Final = "controllers.templates.controller.TemplateController"

CERTIFICATE_CAUSES: Final[Mapping[Write, Cause]] = {
    Write(f"{_CERTIFICATES}._create_secret create"): lost_secret(AUTHORITY, "ca.crt"),
    Write(f"{_CERTIFICATES}._patch_secret patch"): requested_rotation(AUTHORITY, "bundle.crt"),
    Write(f"{_CERTIFICATES}._hand_out create"): lost_secret(SERVING, "tls.crt"),
    Write(f"{_CERTIFICATES}._hand_out patch"): damaged_secret(SERVING, "tls.crt"),
    Write(f"{_CERTIFICATES}._patch patch", "clientConfig/caBundle"): altered_configuration(
        "clientConfig/caBundle"
    ),
    Write(f"{_CERTIFICATES}._patch patch", "clientConfig/url"): altered_configuration(
        "clientConfig/url"
    ),
    Write(f"{_CERTIFICATES}._patch patch", "rules"): altered_configuration("rules"),
    Write(f"{_PATHS}._write create"): lost_secret(PATHS, PATH_KEYS),
    Write(f"{_PATHS}._write patch"): damaged_secret(PATHS, PATH_KEYS),
    Write(f"{_PATHS}._write patch", "annotations"): requested_rotation(PATHS, PATH_KEYS),
    Write(f"{_SIGNING}._rotate create"): signing_key_known(lost_secret(SIGNING, SIGNING_KEYS)),
    Write(f"{_SIGNING}._rotate patch"): signing_key_known(
        requested_rotation(SIGNING, SIGNING_KEYS)
    ),
}
CONTROLLER_CAUSES: Final[Mapping[Write, Cause]] = {
    Write(f"{_TEMPLATES}._create create"): waiting_pod,
    Write(f"{_TEMPLATES}._delete delete"): poisoned_template,
    Write(f"{_TEMPLATES}._delete_claim delete"): poisoned_template,
    Write(f"{_TEMPLATES}._delete_unused delete"): unused_template,
    Write("controllers.policies.controller.PolicyController._write patch"): new_policy,
    Write(f"{_PROFILES}._write create"): lost_profiles,
    Write(f"{_PROFILES}._write patch"): edited_profile,
    Write(f"{_PROFILES}._update_status patch"): edited_profile,
    Write("controllers.audit.controller.AuditController._write_mark patch"): lowered_mark,
    Write("controllers.audit.controller.AuditController._write_mark create"): lost_mark,
    Write("kube.runtime.events.EventRecorder._write create"): unsigned_pod,
    Write("kube.runtime.leader.Leader._write create"): lost_lease,
    Write("kube.runtime.leader.Leader._write patch"): renewed_lease,
}


def kill(stage: Stage, process: str, write: Write, cause: Cause, moment: Moment) -> None:
    """Cause a write, kill its process in the middle, and check the recovery by the next one."""
    steps = cause(stage)
    next(steps)
    stage.arm(process, Order(write=write.name, moment=moment, part=write.part))
    next(steps)
    stage.wait_death(process)
    stage.delete_lease(process)
    assert next(steps, "checked") == "checked"


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("write", CERTIFICATE_CAUSES, ids=str)
def test_a_certificate_controller_that_dies_in_a_write(
    stage_of_kills: Stage, write: Write, moment: Moment
) -> None:
    kill(stage_of_kills, CERTIFICATES, write, CERTIFICATE_CAUSES[write], moment)


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("write", CONTROLLER_CAUSES, ids=str)
def test_a_controller_that_dies_in_a_write(
    stage_of_kills: Stage, write: Write, moment: Moment
) -> None:
    kill(stage_of_kills, CONTROLLER, write, CONTROLLER_CAUSES[write], moment)


def test_every_write_has_its_cause() -> None:
    assert {write.name for write in CERTIFICATE_CAUSES} == set(CERTIFICATE_WRITES)
    assert {write.name for write in CONTROLLER_CAUSES} == set(CONTROLLER_WRITES)


def test_afterwards_no_pod_was_lost_and_a_new_one_runs(stage_of_kills: Stage) -> None:
    stage_of_kills.run_pod()

    for live in stage_of_kills.cluster.objects("pods", stage_of_kills.namespace):
        assert live["status"]["phase"] == "Running", live["metadata"]["name"]
        assert_served(stage_of_kills, live)
