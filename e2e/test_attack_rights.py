"""A stolen token of one of our accounts is good for the account's work, and for nothing else.

A role cannot name what is created, nor say which fields of an object may change. The policies in
manifests/base/accountpolicies.yaml can, and are what these stories meet.
"""

import copy
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import pytest

from admission.match_conditions import KEYS_BEGIN, KEYS_END
from e2e.access import Access, Object, stream
from e2e.attacks import CONFIGURATION_CHANGES, MUTATING, ConfigurationChange, attempt, patched
from e2e.drawbridge import CERTIFICATES, CONTROLLER, Drawbridge
from e2e.objects import claim_template, named_claim, pod
from e2e.translated import legacy_keys
from kube.names import CONFIGURATION, MANAGED_LABEL
from testing.documents import api_object

DENIED: Final = "ValidatingAdmissionPolicy"
LIMITS: Final = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 100}

pytestmark = pytest.mark.usefixtures("fleet")


# --- drawbridge-certificates ----------------------------------------------------------------------


@pytest.mark.parametrize("attack", CONFIGURATION_CHANGES, ids=lambda attack: attack.name)
def test_a_configuration_cannot_be_used_against_the_cluster(
    cluster: Access, drawbridge: Drawbridge, attack: ConfigurationChange
) -> None:
    before = cluster.get(MUTATING, CONFIGURATION)
    step = {"op": "add", "path": attack.path, "value": attack.value}

    status, refused = patched(cluster, drawbridge, [step])

    assert (status, DENIED in refused) == (403, True), refused
    assert cluster.get(MUTATING, CONFIGURATION) == before


def conditions_with(cluster: Access, old: str, new: str) -> list[Object]:
    """The match conditions of the first webhook, with a text of the first replaced."""
    (webhook, *_) = cluster.get(MUTATING, CONFIGURATION)["webhooks"]
    first, *others = webhook["matchConditions"]
    assert old in first["expression"]
    return [{**first, "expression": first["expression"].replace(old, new, 1)}, *others]


CONDITIONS: Final = (
    ("leave the list of names", '"nvidia.com/gpu"', '"a/b"] || true || key in ["a/b"'),
    ("write what is no name", '"nvidia.com/gpu"', '"a/b", string(object)'),
    ("ask about every name", KEYS_END, f' || key.startsWith(""){KEYS_END}'),
    ("end the names twice", KEYS_END, KEYS_END + KEYS_END),
    ("begin the names twice", KEYS_BEGIN, f"true) || ({KEYS_BEGIN}"),
    ("see pods without device keys", ".hasValue()", ".hasValue() || true"),
)


@pytest.mark.parametrize(("name", "old", "new"), CONDITIONS, ids=[row[0] for row in CONDITIONS])
def test_of_a_match_condition_only_names_change(
    cluster: Access, drawbridge: Drawbridge, name: str, old: str, new: str
) -> None:
    before = cluster.get(MUTATING, CONFIGURATION)
    value = conditions_with(cluster, old, new)
    step = {"op": "replace", "path": "/webhooks/0/matchConditions", "value": value}

    status, refused = patched(cluster, drawbridge, [step])

    assert (status, DENIED in refused or "Invalid" in refused) in {(403, True), (422, True)}, name
    assert cluster.get(MUTATING, CONFIGURATION) == before


def test_a_webhook_cannot_be_added_or_removed(cluster: Access, drawbridge: Drawbridge) -> None:
    webhooks = cluster.get(MUTATING, CONFIGURATION)["webhooks"]
    another = {**copy.deepcopy(webhooks[0]), "name": "another.drawbridge.internal"}
    for changed in ([*webhooks, another], [], [another]):
        step = {"op": "replace", "path": "/webhooks", "value": changed}
        status, refused = patched(cluster, drawbridge, [step])
        assert (status, DENIED in refused) == (403, True), refused


class Creation(NamedTuple):
    """An object that an account tries to create, and the words that refuse it."""

    account: str
    document: Object
    reason: str


def secret(name: str, kind: str, **annotations: str) -> Object:
    return api_object("Secret", name, "drawbridge-system", annotations=annotations, type=kind)


def named(kind: str, api_version: str, name: str, **fields: Any) -> Object:
    metadata = {"name": name, "namespace": "drawbridge-system"}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def event(reporter: str) -> Object:
    pod_reference = {"apiVersion": "v1", "kind": "Pod", "name": "a", "namespace": "default"}
    return {
        **named("Event", "events.k8s.io/v1", "a"),
        "metadata": {"name": "a", "namespace": "default"},
        "eventTime": "2026-11-20T00:00:00.000000Z",
        "reportingController": reporter,
        "reportingInstance": "a",
        "regarding": pod_reference,
        "type": "Normal",
        "reason": "A",
        "action": "A",
        "note": "a",
    }


def template(name: str, **labels: str) -> Object:
    document = claim_template(name, "gpu.example.com")
    document["metadata"] |= {"namespace": "default", "labels": labels}
    return document


TOKEN: Final = "kubernetes.io/service-account-token"
HASH: Final = "0123456789abcdef"
CREATIONS: Final = (
    Creation(CERTIFICATES, secret("token", TOKEN, **{
        "kubernetes.io/service-account.name": "drawbridge-controller"}), "its Secrets are"),
    Creation(CERTIFICATES, secret("drawbridge-other", "Opaque"), "its Secrets are"),
    Creation(CERTIFICATES, named("Lease", "coordination.k8s.io/v1", "drawbridge-controller-x"), "its Lease is"),
    Creation(CERTIFICATES, pod("a"), "cannot create resource"),
    Creation(CONTROLLER, named("Lease", "coordination.k8s.io/v1", "drawbridge-certificates-x"), "its Lease is"),
    Creation(CONTROLLER, named("ConfigMap", "v1", "kube-root-ca"), "its ConfigMaps are"),
    Creation(CONTROLLER, event("kubelet"), "its events are reported by"),
    Creation(CONTROLLER, template(f"hami-gpu-1-{HASH}"), "its templates have"),
    Creation(CONTROLLER, template("mine", **{MANAGED_LABEL: "true"}), "its templates have"),
    Creation(CONTROLLER, secret("drawbridge-ca-x", "Opaque"), "cannot create resource"),
)  # fmt: skip


@pytest.mark.parametrize(
    "row",
    CREATIONS,
    ids=lambda row: f"{row.account} {row.document['kind']} {row.document['metadata']['name']}",
)
def test_what_an_account_cannot_create(
    cluster: Access, drawbridge: Drawbridge, row: Creation
) -> None:
    document = stream(row.document)

    attempt_ = attempt(
        cluster, drawbridge, row.account, "create", "--validate=false", "-f", "-", input=document
    )

    assert row.reason in attempt_


# --- drawbridge-controller ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        f"get {MUTATING} {CONFIGURATION}",
        "get secret -n drawbridge-system drawbridge-ca",
        "get secret -n drawbridge-system drawbridge-webhook-tls",
    ],
)
def test_the_controller_has_no_part_in_certificates(
    cluster: Access, drawbridge: Drawbridge, words: str
) -> None:
    assert "forbidden: User" in attempt(cluster, drawbridge, CONTROLLER, *words.split())


def test_claims_that_people_made_or_pods_use_cannot_be_deleted(
    cluster: Access, drawbridge: Drawbridge, namespace: str
) -> None:
    cluster.apply(with_namespace(pod("share", limits=LIMITS), namespace))
    cluster.wait_running("share", namespace)
    cluster.apply(named_claim("mine", "gpu.example.com", namespace=namespace))
    names = {
        object_["metadata"]["name"] for object_ in cluster.objects("resourceclaims", namespace)
    }

    for name in names:
        words = ("delete", "--wait=false", "-n", namespace, "resourceclaim", name)
        assert "it deletes claims that were generated" in attempt(
            cluster, drawbridge, CONTROLLER, *words
        )

    assert len(names) == 2
    assert names == {
        object_["metadata"]["name"] for object_ in cluster.objects("resourceclaims", namespace)
    }


def test_templates_that_people_made_cannot_be_deleted(
    cluster: Access, drawbridge: Drawbridge, namespace: str
) -> None:
    cluster.apply(with_namespace(claim_template("mine", "gpu.example.com"), namespace))
    words = ("delete", "--wait=false", "-n", namespace, "resourceclaimtemplate", "mine")

    assert "its templates have derived names" in attempt(cluster, drawbridge, CONTROLLER, *words)


def with_namespace(document: Object, namespace: str) -> Object:
    metadata: Mapping[str, Any] = document["metadata"]
    return {**document, "metadata": {**metadata, "namespace": namespace}}


# --- before anything of ours runs -----------------------------------------------------------------


def test_while_nothing_of_ours_starts_pods_with_device_keys_are_created(
    cluster: Access, drawbridge: Drawbridge, namespace: str
) -> None:
    """As with an image that cannot start."""
    drawbridge.uninstall()
    cluster.wait_gone("namespaces", drawbridge.namespace, timeout_s=60)
    try:
        cluster.apply(drawbridge.applied())
        cluster.apply(with_namespace(pod("early", limits=LIMITS), namespace))
        assert legacy_keys(cluster.get("pods", "early", namespace)) == set(LIMITS)

        drawbridge.start(CERTIFICATES)  # It alone asks nobody to ask a webhook that is not there.
        cluster.wait_for("secrets", "drawbridge-webhook-tls", drawbridge.namespace)
        cluster.apply(with_namespace(pod("still-early", limits=LIMITS), namespace))
        assert legacy_keys(cluster.get("pods", "still-early", namespace)) == set(LIMITS)
    finally:
        drawbridge.stop(CERTIFICATES)
        drawbridge.install()

    cluster.apply(with_namespace(pod("late", limits=LIMITS), namespace))
    assert legacy_keys(cluster.wait_running("late", namespace)) == set()
