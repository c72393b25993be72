"""The manifests as files: complete, least privileged, and as the code generates them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from admission.webhook_configuration import configuration, validating_configuration
from answers.model.kubernetes_version import OLDEST_KUBERNETES
from clusterstate.autoscalers import INSTALLED, KUEUE_CONFIGURATION
from controllers.audit.policy_reports import REPORT_KINDS, REPORT_NAME
from controllers.certificates.settings import Settings as CertificateProcessSettings
from kube.api.urls import WEBHOOK_CONFIGURATIONS, WORKLOADS
from kube.manifests.reader import read_paths
from kube.names import DISTRIBUTION, NAME, NAMESPACE
from process.certificates.certificates import MANAGED_LABELS, CertificateSettings
from tools import generate
from translation.cluster.snapshot import Mode
from translation.reading.arbiter import VOCABULARIES
from webhook.settings import Settings

ROOT: Final = Path(__file__).parent.parent
BASE: Final = ROOT / "manifests" / "base"

Document = Mapping[str, Any]


def objects(folder: Path = BASE) -> list[Document]:
    return [path.document for path in read_paths([str(folder)])]


def of_kind(*kinds: str) -> Iterator[Document]:
    return (object_ for object_ in objects() if object_["kind"] in kinds)


def rules(account: str) -> set[tuple[str, str, str]]:
    """Return (role kind, resource, verb) of each right of an account."""
    return {
        (role["kind"], resource, verb)
        for role in of_kind("ClusterRole", "Role")
        if role["metadata"]["name"] == account
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_kustomization_lists_every_file() -> None:
    (kustomization,) = of_kind("Kustomization")
    files = {path.name for path in BASE.iterdir()} - {"kustomization.yaml"}

    assert files == set(kustomization["resources"])


@pytest.fixture(scope="module")
def stale_paths() -> Sequence[str]:
    return generate.stale()


@pytest.mark.parametrize("path", [path for path, _ in generate.GENERATED])
def test_a_generated_file_is_what_the_code_says(path: str, stale_paths: Sequence[str]) -> None:
    assert path not in stale_paths


def test_a_changed_file_is_stale_until_it_is_written(tmp_path: Path) -> None:
    assert generate.stale(tmp_path) == [path for path, _ in generate.GENERATED]

    generate.write(tmp_path)

    assert generate.stale(tmp_path) == []


SERVED_SINCE: Final = {
    "v1": (1, 0),
    "admissionregistration.k8s.io/v1": (1, 30),
    "apiextensions.k8s.io/v1": (1, 16),
    "apps/v1": (1, 9),
    "flowcontrol.apiserver.k8s.io/v1": (1, 29),
    "networking.k8s.io/v1": (1, 7),
    "policy/v1": (1, 21),
    "rbac.authorization.k8s.io/v1": (1, 8),
    "resource.k8s.io/v1": (1, 34),
}
"""API version to the Kubernetes that serves all kinds of it that the manifests have: of
admissionregistration.k8s.io/v1 the newest is the ValidatingAdmissionPolicy, but for
manifests/quota-gates and manifests/bridge, which need 1.36."""
OTHERS: Final = ("cert-manager.io/", "drawbridge.internal/", "kustomize.config.k8s.io/")


def test_the_oldest_kubernetes_serves_every_object() -> None:
    paths = sorted((ROOT / "manifests").rglob("*.yaml"))
    documents = [
        document
        for path in paths
        for document in yaml.load_all(path.read_text(), Loader=yaml.CSafeLoader)
    ]
    used = {document["apiVersion"] for document in documents if "apiVersion" in (document or {})}
    of_kubernetes = {version for version in used if not version.startswith(OTHERS)}

    assert of_kubernetes == SERVED_SINCE.keys()
    assert max(SERVED_SINCE.values()) <= OLDEST_KUBERNETES


def test_the_generated_configurations_read_back() -> None:
    (mutating,) = of_kind("MutatingWebhookConfiguration")
    (validating,) = of_kind("ValidatingWebhookConfiguration")

    assert configuration(VOCABULARIES.values()) == mutating
    assert validating_configuration(VOCABULARIES.values()) == validating


def test_no_role_has_a_wildcard() -> None:
    assert not [
        role["metadata"]["name"]
        for role in of_kind("ClusterRole", "Role")
        for rule in role["rules"]
        for words in rule.values()
        if any("*" in word for word in words)
    ]


FOLLOW: Final = ("list", "watch")
CALLS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "drawbridge-webhook": {
        "allocatorownerships": FOLLOW,
        "configmaps": FOLLOW,
        "customresourcedefinitions": FOLLOW,
        "deviceclasses": FOLLOW,
        "devicecompatibilitypolicies": FOLLOW,
        "devicequotas": FOLLOW,
        "mutatingwebhookconfigurations": FOLLOW,
        "devicetaintrules": FOLLOW,
        "elasticquotas": FOLLOW,
        "gpuresourcequotas": FOLLOW,
        "limitranges": FOLLOW,
        "namespaces": FOLLOW,
        "network-attachment-definitions": FOLLOW,
        "nodes": FOLLOW,
        "podgroups": FOLLOW,
        "resourceclaims": FOLLOW,
        "resourceclaimtemplates": FOLLOW,
        "resourcequotas": FOLLOW,
        "resourceslices": FOLLOW,
        "secrets": ("get", *FOLLOW),
        "workloadprofiles": FOLLOW,
    },
    "drawbridge-controller": {
        "allocatorownerships": FOLLOW,
        "podgroups": (*FOLLOW, "create", "delete"),
        "pods": (*FOLLOW, "patch"),
        "resourceclaimtemplates": (*FOLLOW, "create", "delete"),
        "resourceclaims": (*FOLLOW, "delete"),
        "resourceslices": FOLLOW,
        "configmaps": (*FOLLOW, "create", "patch"),
        "customresourcedefinitions": FOLLOW,
        "deviceclasses": FOLLOW,
        "devicetaintrules": FOLLOW,
        "namespaces": FOLLOW,
        "nodes": FOLLOW,
        "devicecompatibilitypolicies": FOLLOW,
        "devicecompatibilitypolicies/status": ("patch",),
        "devicequotas": FOLLOW,
        "devicequotas/status": ("patch",),
        "devicetranslationprofiles": FOLLOW,
        "devicetranslationprofiles/status": ("patch",),
        **{kind.plural: ("get", *FOLLOW) for kind in WORKLOADS},
        "events": ("create",),
        "limitranges": FOLLOW,
        "network-attachment-definitions": FOLLOW,
        "workloadprofiles": FOLLOW,
        "mutatingadmissionpolicies": ("list", "get"),
        "mutatingadmissionpolicybindings": ("get",),
        "resourcequotas": FOLLOW,
        "elasticquotas": FOLLOW,
        "elasticquotaprofiles": ("list",),
        "gpuresourcequotas": FOLLOW,
        "queues": ("list",),
        "validatingadmissionpolicies": ("list", "watch", "get"),
        "validatingadmissionpolicybindings": ("get",),
        **{
            kind.resource.plural: ("list", "create", "patch", "delete")
            for kinds in REPORT_KINDS.values()
            for kind in kinds
        },
        "secrets": FOLLOW,
        "leases": ("create", "get", "patch"),
    },
    "drawbridge-certificates": {
        "allocatorownerships": FOLLOW,
        "configmaps": FOLLOW,
        **{kind.plural: (*FOLLOW, "patch") for kind in WEBHOOK_CONFIGURATIONS},
        "events": ("create",),
        "secrets": (*FOLLOW, "create", "get", "patch"),
        "leases": ("create", "get", "patch"),
    },
}
"""Account to resource to the calls that the code makes, and no others."""


@pytest.mark.parametrize("account", CALLS)
def test_an_account_may_do_what_its_process_does_and_nothing_else(account: str) -> None:
    assert {(resource, verb) for resource, verbs in CALLS[account].items() for verb in verbs} == {
        (resource, verb) for _, resource, verb in rules(account)
    }


def test_the_key_of_the_authority_is_in_one_process() -> None:
    secrets = {
        (role["metadata"]["name"], *rule["resourceNames"])
        for role in of_kind("ClusterRole", "Role")
        for rule in role["rules"]
        if "secrets" in rule["resources"] and rule["verbs"] != ["create"]
    }
    settings, signing = CertificateSettings(), Settings().signing.secret

    assert secrets == {
        ("drawbridge-webhook", settings.serving_secret),
        ("drawbridge-webhook", signing, settings.path_secret),
        ("drawbridge-controller", signing),
        ("drawbridge-certificates", settings.authority_secret, settings.serving_secret),
        ("drawbridge-certificates", signing),
        ("drawbridge-certificates", settings.path_secret),
    }


def test_a_role_that_may_create_is_bound_by_a_policy() -> None:
    """A role cannot name the created object; a policy for the account and the resource can."""
    creates = {
        (role["metadata"]["name"], resource)
        for role in of_kind("ClusterRole", "Role")
        if not any("aggregate-to" in label for label in role["metadata"]["labels"])
        for rule in role["rules"]
        for resource in rule["resources"]
        if "create" in rule["verbs"]
    }
    bound = {
        (policy["metadata"]["name"], resource)
        for policy in of_kind("ValidatingAdmissionPolicy")
        for rule in policy["spec"]["matchConstraints"]["resourceRules"]
        for resource in rule["resources"]
    }

    assert creates <= bound
    for policy in of_kind("ValidatingAdmissionPolicy"):
        (condition,) = policy["spec"]["matchConditions"]
        account = f"system:serviceaccount:{NAMESPACE}:{policy['metadata']['name']}"
        assert condition["expression"] == f'request.userInfo.username == "{account}"'
        assert policy["spec"]["failurePolicy"] == "Fail"
    assert [binding["spec"] for binding in of_kind("ValidatingAdmissionPolicyBinding")] == [
        {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}
        for policy in of_kind("ValidatingAdmissionPolicy")
    ]


def test_the_secrets_of_keys_are_ours_and_empty() -> None:
    secrets = list(of_kind("Secret"))

    assert {secret["metadata"]["name"] for secret in secrets} == {
        Settings().signing.secret,
        CertificateSettings().path_secret,
    }
    for secret in secrets:
        assert MANAGED_LABELS.items() <= secret["metadata"]["labels"].items()
        assert not secret.keys() & {"data", "stringData", "immutable"}


def test_every_field_of_a_webhook_is_kept_as_it_is_or_is_the_accounts_to_write() -> None:
    policy = next(of_kind("ValidatingAdmissionPolicy"))
    text = "".join(validation["expression"] for validation in policy["spec"]["validations"])
    fields = {
        field
        for document in of_kind("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
        for webhook in document["webhooks"]
        for field in webhook
    }

    assert [field for field in sorted(fields) if f"new.?{field}" not in text] == []


def test_what_may_not_see_claims_is_looked_for_by_name() -> None:
    looked_for = {
        (resource, name)
        for role in of_kind("ClusterRole")
        for rule in role["rules"]
        for resource in rule["resources"]
        if resource in {"configmaps", "customresourcedefinitions"}
        for name in rule.get("resourceNames", ["any"])
    }

    assert looked_for == {
        (resource.plural, name) for resource, _, name in (*INSTALLED.values(), KUEUE_CONFIGURATION)
    }


def test_reports_are_changed_by_name_only() -> None:
    verbs = [
        (rule["verbs"], rule.get("resourceNames"))
        for role in of_kind("ClusterRole", "Role")
        for rule in role["rules"]
        if any(resource.endswith("reports") for resource in rule["resources"])
    ]

    assert verbs == [(["list", "create"], None), (["patch", "delete"], [REPORT_NAME])] * 2


def test_nobody_reads_secrets_of_the_whole_cluster() -> None:
    assert not [
        role
        for role in of_kind("ClusterRole")
        for rule in role["rules"]
        if "secrets" in rule["resources"]
    ]


def test_each_binding_is_of_a_role_and_an_account_that_are_there() -> None:
    there = {
        (object_["kind"], object_["metadata"]["name"])
        for object_ in objects()
        if "metadata" in object_
    }

    for binding in of_kind("RoleBinding", "ClusterRoleBinding"):
        assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) in there
        for subject in binding["subjects"]:
            assert (subject["kind"], subject["name"]) in there


@pytest.mark.parametrize(
    "deployment", list(of_kind("Deployment")), ids=lambda d: d["metadata"]["name"]
)
def test_pods_are_restricted(deployment: Document) -> None:
    spec = deployment["spec"]["template"]["spec"]
    (container,) = spec["containers"]

    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"readinessProbe", "livenessProbe", "resources"} <= set(container)


def test_a_budget_lets_a_node_be_drained_and_keeps_a_replica() -> None:
    (budget,) = of_kind("PodDisruptionBudget")
    (webhook,) = (d for d in of_kind("Deployment") if d["metadata"]["name"] == "drawbridge-webhook")

    assert budget["spec"] == {
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": webhook["spec"]["selector"],
    }


def test_only_ports_that_are_served_are_open() -> None:
    for policy, deployment in zip(of_kind("NetworkPolicy"), of_kind("Deployment"), strict=True):
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        rules = policy["spec"]["ingress"]

        assert policy["spec"]["podSelector"] == deployment["spec"]["selector"]
        assert policy["spec"]["policyTypes"] == ["Ingress"]
        assert [port["name"] for port in container["ports"]] == [
            port["port"] for rule in rules for port in rule["ports"]
        ]
        (metrics,) = (rule for rule in rules if "from" in rule)
        assert metrics["from"] == [{"namespaceSelector": {"matchLabels": {"metrics": "enabled"}}}]
        assert metrics["ports"] == [{"protocol": "TCP", "port": "metrics"}]


def test_names_are_those_of_the_default_settings() -> None:
    named = {
        (object_["kind"], object_["metadata"]["name"])
        for object_ in objects()
        if "metadata" in object_
    }
    settings = Settings()
    assert settings.certificates == CertificateProcessSettings().certificates

    assert {
        ("Namespace", settings.namespace),
        ("Service", settings.certificates.service),
        ("MutatingWebhookConfiguration", settings.certificates.webhook_configuration),
        ("ValidatingWebhookConfiguration", settings.certificates.webhook_configuration),
    } <= named


def test_a_pod_is_not_killed_before_it_has_drained() -> None:
    (webhook,) = (d for d in of_kind("Deployment") if d["metadata"]["name"] == "drawbridge-webhook")
    serve = Settings().webhook

    assert (
        webhook["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        > serve.max_drain + serve.shutdown_grace_period
    )


# --- a namespace of another name ------------------------------------------------------------------

OWN_NAMESPACE: Final = ROOT / "manifests" / "overlays" / "own-namespace"
RENAMED_BY_KUSTOMIZE: Final = {
    ("metadata", "namespace"),
    ("metadata", "name"),
    ("subjects", "*", "namespace"),
    ("webhooks", "*", "clientConfig", "service", "namespace"),
}
"""Fields that kustomize itself changes with `namespace`: v5.5, namespace and name reference transformers."""


def places_of_the_namespace(
    value: Any, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the path and the text of each string that contains the namespace."""
    if isinstance(value, Mapping):
        for key, member in value.items():
            yield from places_of_the_namespace(member, (*path, str(key)))
    elif isinstance(value, list):
        for number, member in enumerate(value):
            yield from places_of_the_namespace(member, (*path, str(number)))
    elif isinstance(value, str) and NAMESPACE in value:
        yield path, value


def matches(path: tuple[str, ...], pattern: Sequence[str]) -> bool:
    return len(path) == len(pattern) and all(
        step in ("*", name) for step, name in zip(pattern, path, strict=True)
    )


def replaced(document: Document, path: tuple[str, ...], text: str) -> str:
    """Return a text after the replacements of the overlay, for the namespace gpu-system."""
    replacements = yaml.load(
        (OWN_NAMESPACE / "replacements.yaml").read_text(), Loader=yaml.CSafeLoader
    )
    for target in (target for entry in replacements for target in entry["targets"]):
        select, options = target["select"], target.get("options", {"delimiter": "\0", "index": 0})
        is_selected = select["kind"] == document["kind"] and (
            select.get("name", document["metadata"]["name"]) == document["metadata"]["name"]
        )
        for field_path in target["fieldPaths"]:
            steps = field_path.replace("[cert-manager.io/inject-ca-from]", "?").split(".")
            if is_selected and matches(path, steps):
                parts = text.split(options["delimiter"])
                parts[options["index"]] = "gpu-system"
                text = options["delimiter"].join(parts)
    return text


MODES: Final = {"opt-in": Mode.OPT_IN, "shadow": Mode.SHADOW}
"""Overlay to its mode."""
OVERLAYS: Final = sorted(path.name for path in OWN_NAMESPACE.parent.iterdir())


def folders_below(folder: Path) -> Iterator[str]:
    """Yield the names of the folders below a kustomization."""
    kustomization = yaml.load((folder / "kustomization.yaml").read_text(), Loader=yaml.CSafeLoader)
    for resource in kustomization["resources"]:
        if (folder / resource).is_dir():
            yield (folder / resource).resolve().name
            yield from folders_below((folder / resource).resolve())


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_an_overlay_with_the_webhook_is_of_a_mode_other_than_the_widest(overlay: str) -> None:
    below = {overlay, *folders_below(OWN_NAMESPACE.parent / overlay)}

    assert "base" not in below or len(below & MODES.keys()) == 1


def test_the_overlay_of_the_docs_has_the_mode_of_the_folder_that_it_stands_on() -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    documents = [
        yaml.load(block, Loader=yaml.CSafeLoader)
        for block in re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    ]

    (kustomization,) = (entry for entry in documents if entry.get("kind") == "Kustomization")
    (settings,) = (entry for entry in documents if "translation" in entry)
    (resource,) = kustomization["resources"]
    (generator,) = kustomization["configMapGenerator"]
    assert settings["translation"]["mode"] == MODES[resource.removeprefix("../")]
    assert (generator["namespace"], generator["behavior"]) == (NAMESPACE, "replace")


@pytest.mark.parametrize("folder", ["base", "quota-gates"])
def test_an_overlay_changes_every_place_of_the_namespace(folder: str) -> None:
    remaining = [
        f"{document['kind']} {document['metadata']['name']}: {'.'.join(path)}: {text}"
        for document in objects(BASE.parent / folder)
        if document["kind"] != "Kustomization"
        for path, text in places_of_the_namespace(document)
        if not any(matches(path, pattern) for pattern in RENAMED_BY_KUSTOMIZE)
        and NAMESPACE in replaced(document, path, text)
    ]

    assert remaining == []


def test_the_configurations_of_another_namespace_are_known() -> None:
    for generate_configuration in (configuration, validating_configuration):
        other = generate_configuration(VOCABULARIES.values(), "gpu-system")

        assert not list(places_of_the_namespace(other))
        webhooks = generate_configuration([])["webhooks"]
        assert len(list(places_of_the_namespace(generate_configuration([])))) == 2 * len(webhooks)


@pytest.mark.parametrize("folder", ["base", "bridge", "driver", "observer", "policies"])
def test_every_object_has_the_labels_that_kubernetes_recommends(folder: str) -> None:
    kustomization = yaml.load(
        (BASE.parent / folder / "kustomization.yaml").read_text(), Loader=yaml.CSafeLoader
    )

    (labels,) = kustomization["labels"]
    assert labels["includeTemplates"]
    assert labels["pairs"] == {
        "app.kubernetes.io/instance": NAME,
        "app.kubernetes.io/managed-by": "kustomize",
        "app.kubernetes.io/part-of": NAME,
        "app.kubernetes.io/version": version(DISTRIBUTION),
    }
