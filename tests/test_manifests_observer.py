"""The observer's manifests: alone, least privileged, and as hardened as the webhook's."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from clusterstate.projections import RESOURCES
from kube.manifests.reader import read_paths
from observer.observer import WATCHED
from observer.settings import Settings

ROOT: Final = Path(__file__).parent.parent
OBSERVER: Final = ROOT / "manifests" / "observer"
BASE: Final = ROOT / "manifests" / "base"

Document = Mapping[str, Any]


def of_kind(kind: str, folder: Path = OBSERVER) -> Iterator[Document]:
    return (
        read_path.document
        for read_path in read_paths([str(folder)])
        if read_path.document["kind"] == kind
    )


def test_the_kustomization_lists_every_file() -> None:
    (kustomization,) = of_kind("Kustomization")

    assert {path.name for path in OBSERVER.iterdir()} - {"kustomization.yaml"} == set(
        kustomization["resources"]
    )


def test_it_shares_no_object_with_what_else_is_installed() -> None:
    """So that each can be deleted without the other."""

    def names(folder: Path) -> set[tuple[str, str, str]]:
        return {
            (
                read_path.document["kind"],
                read_path.document["metadata"].get("namespace", ""),
                read_path.document["metadata"]["name"],
            )
            for read_path in read_paths([str(folder)])
            if "metadata" in read_path.document
        }

    assert not names(OBSERVER) & names(BASE)


def test_it_may_do_what_it_does_and_nothing_else() -> None:
    (role,) = of_kind("ClusterRole")
    granted = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    watched = [RESOURCES[kind] for kind in WATCHED]
    followed = {(resource.group, resource.plural) for resource in watched} | {("", "pods")}

    assert granted == {
        *((group, plural, verb) for group, plural in followed for verb in ("list", "watch")),
        ("events.k8s.io", "events", "create"),
        ("events.k8s.io", "events", "patch"),
    }
    assert not list(of_kind("Role"))


def test_the_binding_is_of_its_role_and_its_account() -> None:
    (binding,) = of_kind("ClusterRoleBinding")
    (account,) = of_kind("ServiceAccount")
    (role,) = of_kind("ClusterRole")
    (deployment,) = of_kind("Deployment")

    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert [
        {
            "kind": "ServiceAccount",
            "name": account["metadata"]["name"],
            "namespace": account["metadata"]["namespace"],
        }
    ] == binding["subjects"]
    spec = deployment["spec"]["template"]["spec"]
    assert account["metadata"]["name"] == spec["serviceAccountName"]


def test_its_account_writes_its_own_events_only() -> None:
    (policy,) = of_kind("ValidatingAdmissionPolicy")
    (account,) = of_kind("ServiceAccount")
    (binding,) = of_kind("ValidatingAdmissionPolicyBinding")
    (condition,) = policy["spec"]["matchConditions"]
    name = f"{account['metadata']['namespace']}:{account['metadata']['name']}"

    assert f'"system:serviceaccount:{name}"' in condition["expression"]
    assert binding["spec"] == {
        "policyName": policy["metadata"]["name"],
        "validationActions": ["Deny"],
    }


def test_it_is_hardened_as_the_webhook_is() -> None:
    (observer,) = of_kind("Deployment")
    (webhook,) = (
        deployment
        for deployment in of_kind("Deployment", BASE)
        if deployment["metadata"]["name"].endswith("webhook")
    )
    pods = [deployment["spec"]["template"]["spec"] for deployment in (observer, webhook)]
    of_observer, of_webhook = pods

    assert of_observer["securityContext"] == of_webhook["securityContext"]
    (container,), like = of_observer["containers"], of_webhook["containers"][0]
    assert container["securityContext"] == like["securityContext"]
    assert container["image"] == like["image"]
    assert {"readinessProbe", "livenessProbe", "resources"} <= set(container)
    assert not {"hostNetwork", "hostPID"} & set(of_observer)
    # Its settings, and nothing else of the node or of the cluster.
    assert of_observer["volumes"] == [
        {"name": "settings", "configMap": {"name": "drawbridge-settings", "optional": True}}
    ]
    (mount,) = container["volumeMounts"]
    assert mount["readOnly"] is True


def test_its_namespace_takes_restricted_pods_only() -> None:
    (namespace,) = of_kind("Namespace")
    (base,) = of_kind("Namespace", BASE)

    assert base["metadata"]["labels"] == namespace["metadata"]["labels"]


def test_only_its_probes_and_metrics_can_be_reached() -> None:
    (policy,) = of_kind("NetworkPolicy")
    (deployment,) = of_kind("Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    rules = policy["spec"]["ingress"]
    settings = Settings().observer

    assert policy["spec"]["podSelector"] == deployment["spec"]["selector"]
    assert [port["name"] for port in container["ports"]] == [
        port["port"] for rule in rules for port in rule["ports"]
    ]
    assert [settings.probe_port, settings.metrics_port] == [
        port["containerPort"] for port in container["ports"]
    ]


def test_two_do_not_run_at_once() -> None:
    (deployment,) = of_kind("Deployment")

    assert deployment["spec"]["replicas"] == 1
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
