"""The bridge's manifests: least privileged, hardened, and configured as the plugin needs it."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from kube.manifests.reader import read_paths
from kube.names import DEFAULT_SCHEDULER_NAME, NAMESPACE, SCHEDULER_NAME
from sidecar.model.settings import Settings

ROOT: Final = Path(__file__).parent.parent
BRIDGE: Final = ROOT / "manifests" / "bridge"
BASE: Final = ROOT / "manifests" / "base"
SETTINGS: Final = Settings().sidecar

Document = Mapping[str, Any]


def of_kind(kind: str, folder: Path = BRIDGE) -> Iterator[Document]:
    return (
        read_path.document
        for read_path in read_paths([str(folder)])
        if read_path.document["kind"] == kind
    )


def containers() -> dict[str, Document]:
    (deployment,) = of_kind("Deployment")
    entries = deployment["spec"]["template"]["spec"]["containers"]
    return {container["name"]: container for container in entries}


def data(file: str) -> Any:
    (configuration,) = of_kind("ConfigMap")
    return yaml.load(configuration["data"][file], Loader=yaml.CSafeLoader)


def granted(role: Document) -> set[str]:
    return {
        f"{verb} {resource}.{group}".rstrip(".")
        for rule in role["rules"]
        for group in rule.get("apiGroups", ())
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_kustomization_lists_every_file_but_the_fence_and_the_ownership() -> None:
    """An object that is applied again loses the drivers in its text."""
    (kustomization,) = of_kind("Kustomization")

    assert {path.name for path in BRIDGE.iterdir()} - {
        "kustomization.yaml",
        "fence.yaml",
        "ownership.yaml",
    } == set(kustomization["resources"])


def test_it_writes_what_scheduling_and_allocating_need_and_nothing_else() -> None:
    (role,) = of_kind("ClusterRole")
    reading = {right for right in granted(role) if right.split()[0] in {"get", "list", "watch"}}

    assert granted(role) - reading == {
        "create events.events.k8s.io",
        "create pods/binding",
        "create subjectaccessreviews.authorization.k8s.io",
        "create tokenreviews.authentication.k8s.io",
        "delete pods",
        "patch allocatorownerships/status.drawbridge.internal",
        "patch events.events.k8s.io",
        "patch persistentvolumeclaims",
        "patch persistentvolumes",
        "patch podgroups/status.scheduling.k8s.io",
        "patch pods/status",
        "patch resourceclaims.resource.k8s.io",
        "patch resourceclaims/binding.resource.k8s.io",
        "patch resourceclaims/status.resource.k8s.io",
        "update persistentvolumeclaims",
        "update persistentvolumes",
    }
    assert not {right for right in reading if "secrets" in right or "configmaps" in right}
    (urls,) = (rule for rule in role["rules"] if "nonResourceURLs" in rule)
    assert urls == {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}


def test_it_renews_its_own_lease_only() -> None:
    (role,) = of_kind("Role")
    (named,) = (rule for rule in role["rules"] if "resourceNames" in rule)

    assert named["resourceNames"] == [SETTINGS.leader_election.resource_name]
    assert granted(role) == {
        f"{verb} leases.coordination.k8s.io" for verb in ("create", "get", "patch")
    }


def test_one_account_has_all_rights() -> None:
    (account,) = of_kind("ServiceAccount")
    (deployment,) = of_kind("Deployment")
    subject = {"kind": "ServiceAccount", "name": "drawbridge-bridge", "namespace": NAMESPACE}

    assert account["metadata"]["name"] == subject["name"]
    for binding in (*of_kind("ClusterRoleBinding"), *of_kind("RoleBinding")):
        assert [subject] == binding["subjects"]
        assert binding["roleRef"]["name"] == "drawbridge-bridge"
    assert deployment["spec"]["template"]["spec"]["serviceAccountName"] == subject["name"]


def test_the_account_has_a_place_of_its_own_at_the_api_server() -> None:
    """Neither its claims nor its Lease wait for other service accounts, nor the Lease for the claims."""
    (level,) = of_kind("PriorityLevelConfiguration")
    lease, everything = sorted(
        of_kind("FlowSchema"), key=lambda schema: schema["spec"]["matchingPrecedence"]
    )
    account = {"name": "drawbridge-bridge", "namespace": NAMESPACE}

    for schema in (lease, everything):
        (rule,) = schema["spec"]["rules"]
        assert [{"kind": "ServiceAccount", "serviceAccount": account}] == rule["subjects"]
    assert lease["spec"]["priorityLevelConfiguration"] == {"name": "leader-election"}
    assert lease["spec"]["rules"][0]["resourceRules"][0]["resources"] == ["leases"]
    assert everything["spec"]["priorityLevelConfiguration"] == {"name": level["metadata"]["name"]}
    assert everything["spec"]["distinguisherMethod"] == {"type": "ByNamespace"}


def test_both_containers_are_hardened_as_the_webhook_is() -> None:
    (deployment,) = of_kind("Deployment")
    (webhook,) = (
        deployment_
        for deployment_ in of_kind("Deployment", BASE)
        if deployment_["metadata"]["name"].endswith("webhook")
    )
    pod = deployment["spec"]["template"]["spec"]
    like = webhook["spec"]["template"]["spec"]

    # The group owns the folder of the socket.
    assert pod["securityContext"] == {**like["securityContext"], "fsGroup": 65532}
    for container in containers().values():
        assert container["securityContext"] == like["containers"][0]["securityContext"]
        assert set(container["resources"]) == {"requests", "limits"}
    assert not {"hostNetwork", "hostPID"} & set(pod)
    assert deployment["spec"]["replicas"] == 2


def test_plugin_and_sidecar_meet_at_one_socket() -> None:
    (profile,) = data("scheduler.yaml")["profiles"]
    (plugin,) = profile["pluginConfig"]
    (deployment,) = of_kind("Deployment")
    (folder,) = (
        volume["name"]
        for volume in deployment["spec"]["template"]["spec"]["volumes"]
        if "emptyDir" in volume
    )

    assert plugin == {"name": "Drawbridge", "args": {"socket": SETTINGS.socket}}
    for container in containers().values():
        (mount,) = (
            volume_mount
            for volume_mount in container["volumeMounts"]
            if volume_mount["name"] == folder
        )
        assert SETTINGS.socket.startswith(f"{mount['mountPath']}/")


def test_the_profile_asks_nobody_else_for_devices() -> None:
    configuration = data("scheduler.yaml")
    (profile,) = configuration["profiles"]
    plugins = profile["plugins"]

    assert profile["schedulerName"] == SCHEDULER_NAME
    assert plugins["multiPoint"]["disabled"] == [{"name": "DynamicResources"}]
    assert plugins["preEnqueue"]["enabled"] == [{"name": "DynamicResources"}]
    # Points of their own come before multiPoint, so before DefaultPreemption and DefaultBinder.
    assert plugins["postFilter"]["enabled"] == [{"name": "Drawbridge"}]
    assert plugins["podGroupPostFilter"]["enabled"] == [{"name": "Drawbridge"}]
    assert plugins["bind"]["enabled"] == [{"name": "Drawbridge"}]
    (drawbridge,) = plugins["multiPoint"]["enabled"]
    assert drawbridge["weight"] >= 100
    assert configuration["leaderElection"] == {"leaderElect": False}


def test_no_device_is_given_before_somebody_says_of_which_driver() -> None:
    assert data("settings.yaml") == {"sidecar": {"drivers": []}}


def test_only_probes_can_be_reached_and_metrics_where_somebody_says_so() -> None:
    (policy,) = of_kind("NetworkPolicy")
    (deployment,) = of_kind("Deployment")
    probes, metrics = policy["spec"]["ingress"]
    ports = {
        port["name"]: port["containerPort"]
        for container in containers().values()
        for port in container["ports"]
    }

    assert policy["spec"]["podSelector"] == deployment["spec"]["selector"]
    assert [port["port"] for port in probes["ports"]] == ["probes"]
    assert [port["port"] for port in metrics["ports"]] == ["metrics", "scheduler"]
    assert metrics["from"] == [{"namespaceSelector": {"matchLabels": {"metrics": "enabled"}}}]
    assert ports == {
        "probes": SETTINGS.probe_port,
        "metrics": SETTINGS.metrics_port,
        "scheduler": 10259,
    }


def test_as_the_only_scheduler_it_places_its_own_pods() -> None:
    """Or none could be replaced: the name is in both profiles, of this overlay and of the replaced one."""
    (patch,) = of_kind("Deployment", ROOT / "manifests" / "overlays" / "bridge-only")
    (base,) = of_kind("Deployment")

    assert patch["metadata"]["name"] == base["metadata"]["name"]
    assert patch["metadata"]["namespace"] == base["metadata"]["namespace"]
    (profile,) = data("scheduler.yaml")["profiles"]
    assert patch["spec"] == {"template": {"spec": {"schedulerName": profile["schedulerName"]}}}


def test_as_the_only_scheduler_it_has_the_same_profile_under_both_names() -> None:
    overlay = ROOT / "manifests" / "overlays" / "bridge-only"
    (patch,) = of_kind("ConfigMap", overlay)
    (base,) = of_kind("ConfigMap")
    configuration = yaml.load(patch["data"]["scheduler.yaml"], Loader=yaml.CSafeLoader)
    (profile,) = data("scheduler.yaml")["profiles"]

    assert patch["data"].keys() == {"scheduler.yaml"}
    assert patch["metadata"]["name"] == base["metadata"]["name"]
    assert patch["metadata"]["namespace"] == base["metadata"]["namespace"]
    assert configuration == data("scheduler.yaml") | {
        "profiles": [profile, profile | {"schedulerName": DEFAULT_SCHEDULER_NAME}]
    }
