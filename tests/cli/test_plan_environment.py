"""`drawbridge plan` and `verify --before`: plugins that nobody sees, autoscalers, and GitOps."""

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from answers.model.kinds import API_VERSION
from answers.model.redaction import redact
from cli.runbooks.kustomize import kustomize_files
from kube.manifests.dump import dump_yaml
from kube.manifests.reader import read_paths
from kube.manifests.source import SourceObject
from migration.plan.model.nodes_by_use import NodesByUse
from migration.plan.model.plan import Plan
from migration.plan.neighbours.node_autoscalers import autoscaler_notes, halt_notes
from testing.command import drawbridge
from testing.documents import api_object, device_class, namespace, node, resource_quota
from testing.migration import (
    GPU,
    SHARE,
    daemon_set,
    device_quota,
    hami_node,
    origin,
    plugin_node,
    workload,
)
from testing.plan import call, changes, checks_before, document, held_objects
from translation.cluster.component_statements import Component, Topic, statements_about

Objects = Sequence[Mapping[str, Any]]
PLUGIN: Final = daemon_set("nvidia-device-plugin")
MANAGED_PLUGIN: Final = daemon_set("nvidia-gpu-device-plugin")
MANAGED_PLUGIN["metadata"]["labels"] = {"addonmanager.kubernetes.io/mode": "Reconcile"}
QUOTA: Final[dict[str, Any]] = resource_quota({f"requests.{GPU}": "8"})


def planned(tmp_path: Path, objects: Objects, *options: object) -> dict[str, Any]:
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(objects))
    result = drawbridge("plan", "--snapshot", file, "-o", tmp_path / "plan", *options)
    assert result.exit_code in (0, 1), result.stderr
    (source,) = read_paths([str(tmp_path / "plan" / "plan.yaml")])
    return source.document


def before(tmp_path: Path, objects: Objects) -> list[tuple[str, str, str]]:
    """State, object and message of each check before the first wave."""
    checks = checks_before(tmp_path, objects)
    return [(check["state"], check["object"], check["message"]) for check in checks]


def notes(plan: Mapping[str, Any]) -> str:
    return "\n".join(note for wave in plan["waves"] for note in wave["notes"])


def script(tmp_path: Path, name: str) -> str:
    return (tmp_path / "plan" / name).read_text()


# --- plugins --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        ([], "no DaemonSet of a device plugin"),
        ([MANAGED_PLUGIN], "nvidia-gpu-device-plugin is managed by the cloud"),
    ],
    ids=["a plugin that nobody sees", "a plugin of the cloud"],
)
def test_a_plugin_that_would_stay_stops_the_wave(
    tmp_path: Path, objects: Objects, message: str
) -> None:
    cluster = [plugin_node("gpu-0"), *objects]

    plan = planned(tmp_path, cluster)

    assert message in notes(plan)
    assert [] == plan["plugins"]
    checks = before(tmp_path, cluster)
    assert any(state == "failed" and message in text for state, _, text in checks)


def test_a_label_keeps_such_a_plugin_away(tmp_path: Path) -> None:
    cluster = [plugin_node("gpu-0"), MANAGED_PLUGIN]

    plan = planned(tmp_path, cluster, "--plugin-label", "example.com/no-plugin=true")

    assert "managed by the cloud" not in notes(plan)
    label = [
        line for line in script(tmp_path, "wave-1/switch.sh").splitlines() if " label " in line
    ]
    assert "example.com/no-plugin=true" in label[0]
    assert "example.com/no-plugin-" in script(tmp_path, "wave-1/rollback.sh")
    assert not any("managed by" in text for _, _, text in before(tmp_path, cluster))


@pytest.mark.parametrize(
    "cluster",
    [
        [plugin_node("gpu-0"), PLUGIN],
        [plugin_node("gpu-0", 4, **{"nvidia.com/gpu.deploy.device-plugin": "true"})],
        [hami_node("hami-0")],
    ],
    ids=["a DaemonSet", "the Operator", "HAMi"],
)
def test_a_plugin_that_leaves_is_no_news(tmp_path: Path, cluster: Objects) -> None:
    plan = planned(tmp_path, cluster)

    assert "device plugin is in the cluster" not in notes(plan)
    assert not any("is in the cluster" in text for _, _, text in before(tmp_path, cluster))


def test_where_daemon_sets_cannot_be_read_a_plugin_may_be_there(tmp_path: Path) -> None:
    cluster = [plugin_node("gpu-0"), origin("daemonsets")]
    planned(tmp_path, cluster)

    states = [state for state, _, text in before(tmp_path, cluster) if "device plugin" in text]

    assert ["note"] == states


@pytest.mark.parametrize("label", ["$(reboot)", "key", "=value", "a=b c", "a=b,", "a=b,c"])
def test_a_plugin_label_is_a_label(tmp_path: Path, label: str) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml([plugin_node("gpu-0")]))

    result = drawbridge(
        *("plan", "--snapshot", file, "-o", tmp_path / "plan", "--plugin-label", label)
    )

    assert 2 == result.exit_code
    assert "--plugin-label is KEY=VALUE" in result.stderr


# --- autoscalers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pool", "annotation"),
    [
        ("karpenter.sh/nodepool", "karpenter.sh/do-not-disrupt"),
        ("cloud.google.com/gke-nodepool", "cluster-autoscaler.kubernetes.io/scale-down-disabled"),
        ("eks.amazonaws.com/nodegroup", "cluster-autoscaler.kubernetes.io/scale-down-disabled"),
    ],
)
def test_a_node_of_a_pool_is_kept_while_it_is_empty(
    tmp_path: Path, pool: str, annotation: str
) -> None:
    plan = planned(tmp_path, [plugin_node("gpu-0", 4, **{pool: "a100"}), PLUGIN])

    assert f"node pool {pool}=a100: new nodes come with the device plugin" in notes(plan)
    is_karpenter = pool.startswith("karpenter")
    assert ("nvidia.com/dra-kubelet-plugin=true in the pool" in notes(plan)) is not is_karpenter
    assert ("drift, and Karpenter replaces them" in notes(plan)) is is_karpenter
    assert ("uninitialized, delete its NodeClaim by hand" in notes(plan)) is is_karpenter
    for name, uncordon in (("switch", "kubectl uncordon"), ("rollback", "uncordon_own")):
        lines = [line.strip() for line in script(tmp_path, f"wave-1/{name}.sh").splitlines()]
        begin = lines.index(f"kubectl annotate node gpu-0 --overwrite {annotation}=true")
        end = lines.index(f"kubectl annotate node gpu-0 {annotation}-")
        assert begin < lines.index("kubectl cordon gpu-0")
        assert lines.index(f"{uncordon} gpu-0") < end


@pytest.mark.parametrize("pool", ["b", "a100"])
def test_a_note_on_a_pool_names_its_nodes_that_are_held(tmp_path: Path, pool: str) -> None:
    """It said "once all its nodes are switched", but no wave of the plan switches those."""
    label = "eks.amazonaws.com/nodegroup"
    cordoned = {**plugin_node("gpu-1", 4, **{label: pool}), "spec": {"unschedulable": True}}

    plan = planned(tmp_path, [plugin_node("gpu-0", 4, **{label: "a100"}), cordoned, PLUGIN])

    assert "in the pool once all its nodes are switched" in notes(plan)
    assert ("which this plan does not do, as it holds gpu-1" in notes(plan)) is (pool == "a100")


def test_a_switched_node_is_kept_until_pods_may_use_it(tmp_path: Path) -> None:
    """Uncordoned and empty it was without the annotation, for as long as other nodes of the wave took."""
    pool = {"cloud.google.com/gke-nodepool": "a100"}
    nodes = [plugin_node(f"gpu-{number}", 4, **pool) for number in range(2)]

    planned(tmp_path, [*nodes, PLUGIN], "--wave-nodes", 2)

    lines = [line.strip() for line in script(tmp_path, "wave-1/switch.sh").splitlines()]
    key = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
    last = max(number for number, line in enumerate(lines) if line.startswith("kubectl uncordon"))
    for name in ("gpu-0", "gpu-1"):
        assert last < lines.index(f"kubectl annotate node {name} {key}-")


def test_a_node_is_kept_until_the_last_wave(tmp_path: Path) -> None:
    """It was given back with its own wave; then its autoscaler could remove one that a later wave needs."""
    nodes = [hami_node(name, 1) for name in ("h0", "h1", "h2")]
    for hami in nodes:
        hami["metadata"]["labels"]["cloud.google.com/gke-nodepool"] = "a100"
    full = {GPU: "1", "nvidia.com/gpumem": "40960"}
    teams = [*workload("a", full, ["h0"]), *workload("b", full, ["h1"])]

    plan = planned(tmp_path, [*nodes, namespace("team"), *teams], "--wave-nodes", 1)

    assert [1, 2, 3] == [wave["wave"] for wave in plan["waves"]]
    releases = {
        f"annotate node {node} cluster-autoscaler.kubernetes.io/scale-down-disabled-"
        for node in ("h0", "h1", "h2")
    }
    for wave in (1, 2):
        assert not any(
            release in script(tmp_path, f"wave-{wave}/switch.sh") for release in releases
        )
    assert all(release in script(tmp_path, "wave-3/switch.sh") for release in releases)


def test_an_annotation_of_somebody_else_stays(tmp_path: Path) -> None:
    node = plugin_node("gpu-0", 4, **{"karpenter.sh/nodepool": "a100"})
    node["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}

    planned(tmp_path, [node, PLUGIN])

    assert "annotate" not in script(tmp_path, "wave-1/switch.sh")


def test_a_node_of_no_pool_is_not_annotated(tmp_path: Path) -> None:
    plan = planned(tmp_path, [plugin_node("gpu-0"), PLUGIN])

    assert "node pool" not in notes(plan)
    assert "annotate" not in script(tmp_path, "wave-1/switch.sh")


# --- priorities -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("priorities", "policy", "expected"),
    [
        ((0, 100), None, "from 0 of Pod/team/low-0 to 100 of Pod/team/high-0"),
        ((-10, 0), None, "from -10 of Pod/team/low-0 to 0 of Pod/team/high-0"),
        ((7, 7), None, ""),
        ((0, 100), "Never", ""),
    ],
    ids=["serving", "placeholders", "equal", "evicts nobody"],
)
def test_a_note_says_that_nothing_is_evicted_for_devices_of_a_driver(
    tmp_path: Path, priorities: tuple[int, int], policy: str | None, expected: str
) -> None:
    """Nothing said so, and pods of high priority waited behind placeholders after the waves."""
    pods = []
    for name, priority in zip(("low", "high"), priorities, strict=True):
        owner, pod = workload(name, {GPU: "1"}, ["gpu-0"])
        pod["spec"] |= {"priority": priority, **({"preemptionPolicy": policy} if policy else {})}
        pods += [owner, pod]
    nodes = [plugin_node("gpu-0"), plugin_node("gpu-1"), PLUGIN]

    plan = planned(tmp_path, [*nodes, namespace("team"), *pods], "--wave-nodes", 1)

    texts = [
        [note for note in wave["notes"] if "have different priorities" in note]
        for wave in plan["waves"]
    ]
    assert [bool(expected), *[False] * (len(texts) - 1)] == [bool(own) for own in texts]
    assert all(expected in note for own in texts for note in own)


def rivals(*pods: tuple[str, str, int]) -> list[Mapping[str, Any]]:
    """Nodes, and running pods of a name, a resource name and a priority."""
    running = []
    for name, key, priority in pods:
        owner, pod = workload(name, {key: "1"}, ["gpu-0"])
        pod["spec"] |= {"priority": priority}
        running += [owner, pod]
    return [plugin_node("gpu-0"), plugin_node("gpu-1"), PLUGIN, namespace("team"), *running]


@pytest.mark.parametrize(
    ("version", "expected", "other"),
    [
        ("v1.37.1", "it refuses pods that keep a name that a DeviceClass maps", "of claims alone"),
        ("v1.36.2", "whose only purpose is to be evicted", "bridge"),
    ],
)
def test_the_bridge_is_advised_only_where_it_takes_the_pods(
    tmp_path: Path, version: str, expected: str, other: str
) -> None:
    """The note advised it for pods with mapped names, and for every version of Kubernetes."""
    snapshot = api_object("Snapshot", "cluster", api_version=API_VERSION, kubernetesVersion=version)

    plan = planned(
        tmp_path, [snapshot, *rivals(("low", GPU, 0), ("high", GPU, 9))], "--wave-nodes", 1
    )

    (note,) = [
        note
        for wave in plan["waves"]
        for note in wave["notes"]
        if "have different priorities" in note
    ]
    assert expected in note
    assert other not in note


@pytest.mark.parametrize("highest", [9, 0], ids=["different", "equal"])
def test_an_assessment_notes_priorities_and_is_blocked_by_none(
    tmp_path: Path, highest: int
) -> None:
    """Nothing said before the plan that pods of high priority wait once nodes are switched."""
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(rivals(("low", GPU, 0), ("high", GPU, highest), ("part", "x/y", 99))))

    result = drawbridge("assess", "--snapshot", file, "-o", "json")

    answer = json.loads(result.stdout)
    assert (0, []) == (result.exit_code, answer["blockers"])
    own = [note for note in answer["notes"] if note["code"] == "priorities"]
    assert bool(highest) is bool(own)
    for note in own:
        assert ["Pod/team/high-0", "Pod/team/low-0"] == note["objects"]
        assert "from 0 of Pod/team/low-0 to 9 of Pod/team/high-0" in note["message"]
        assert note["fix"].startswith("keep as many free as pods of high priority may need")


def test_only_pods_that_compete_for_devices_are_compared_by_priority(tmp_path: Path) -> None:
    """Placeholders of a part of a GPU were compared with pods of whole GPUs."""
    part = "nvidia.com/mig-1g.5gb"
    objects = rivals(("low", part, -10), ("high", GPU, 100))
    for plugin in objects[:2]:
        plugin["status"]["allocatable"][part] = "2"

    plan = planned(tmp_path, objects, "--wave-nodes", 1)

    assert plan["waves"]
    assert "have different priorities" not in notes(plan)


# --- GitOps ---------------------------------------------------------------------------------------

MANAGED: Final[tuple[tuple[dict[str, Any], str, str], ...]] = (
    ({"annotations": {"argocd.argoproj.io/tracking-id": "a:b"}}, "Argo CD", "failed"),
    ({"labels": {"kustomize.toolkit.fluxcd.io/name": "apps"}}, "Flux", "failed"),
    ({"labels": {"helm.toolkit.fluxcd.io/name": "apps"}}, "Flux", "failed"),
    ({"managedFields": [{"manager": "argocd-controller"}]}, "Argo CD", "failed"),
    ({"annotations": {"meta.helm.sh/release-name": "apps"}}, "Helm", "note"),
)


def cluster_of(metadata: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """A cluster with a namespace and a quota of such metadata."""
    team = namespace("team")
    team["metadata"] |= metadata
    quota = {**QUOTA, "metadata": {**QUOTA["metadata"], **metadata}}
    return [
        hami_node("hami-0"),
        hami_node("hami-1"),
        team,
        quota,
        *workload("web", SHARE, ["hami-0"]),
    ]


@pytest.mark.parametrize(
    ("metadata", "manager", "state"), MANAGED, ids=lambda value: str(value)[:60]
)
def test_what_gitops_would_take_back_is_named(
    tmp_path: Path, metadata: Mapping[str, Any], manager: str, state: str
) -> None:
    cluster = cluster_of(metadata)

    plan = planned(tmp_path, cluster)

    references = {"Namespace//team": manager, "ResourceQuota/team/gpus": manager}
    assert references == plan["managed"]
    verb = "of" if manager == "Helm" else "managed by"
    assert f"Namespace/team is {verb} {manager}" in notes(plan)
    states = {name: state for state, name, text in before(tmp_path, cluster) if manager in text}
    assert dict.fromkeys(references, state) == states
    # The first page and the preparation say it, not only a note of a later wave.
    is_stopped = state == "failed"
    for file in ("README.md", "prepare.sh"):
        text = (tmp_path / "plan" / file).read_text()
        assert ("stops wave 1, since Argo CD or Flux would take" in text) is is_stopped
        assert ("Namespace/team, ResourceQuota/team/gpus back" in text) is is_stopped


@pytest.mark.parametrize(
    ("metadata", "manager", "state"), MANAGED, ids=lambda value: str(value)[:60]
)
def test_waves_stop_where_gitops_would_bring_a_plugin_back(
    tmp_path: Path, metadata: Mapping[str, Any], manager: str, state: str
) -> None:
    """Every wave began, and with the next sync the plugin came to switched nodes, beside the driver."""
    plugin = daemon_set("nvidia-device-plugin")
    plugin["metadata"] |= metadata
    cluster = [plugin_node("gpu-0"), plugin_node("gpu-1"), *workload("web", {GPU: "1"}, ["gpu-0"])]
    cluster += [namespace("team"), plugin]
    reference = "DaemonSet/kube-system/nvidia-device-plugin"
    text = f"preflight.sh stops waves 1, 2, since {manager} would take back that prepare.sh keeps {reference} from switched nodes, "

    result = call(tmp_path, cluster)

    assert [state, state] == [
        check["state"]
        for wave in (1, 2)
        for check in checks_before(tmp_path, cluster, wave)
        if check["object"] == reference and manager in check["message"]
    ]
    pages = [(tmp_path / "plan" / name).read_text() for name in ("README.md", "prepare.sh")]
    assert {state == "failed"} == {text in page for page in pages}
    assert ("  stops" in result.stdout) is (state == "failed")
    assert "  stops" not in call(tmp_path, cluster, "--format", "kustomize").stdout
    assert {"note"} == {
        check["state"] for check in checks_before(tmp_path, cluster) if manager in check["message"]
    }


BOTH_SIDES: Final = device_quota({"name": GPU})


def test_a_quota_of_which_a_wave_only_removes_lines_is_managed(tmp_path: Path) -> None:
    """The check before the wave passed, and Argo CD put back the line that the wave had removed."""
    cluster = [*cluster_of(MANAGED[0][0]), BOTH_SIDES]

    plan = planned(tmp_path, cluster)

    assert {} == plan["quotas"]
    assert "Argo CD" == plan["managed"]["ResourceQuota/team/gpus"]
    assert "ResourceQuota/team/gpus is managed by Argo CD, which takes back" in notes(plan)
    states = {name: state for state, name, text in before(tmp_path, cluster) if "Argo CD" in text}
    assert "failed" == states["ResourceQuota/team/gpus"]


def test_a_patch_is_named_with_its_folder_and_the_script_that_asks_for_it(tmp_path: Path) -> None:
    """That of a quota was to be committed for its wave, and is in the folder of the preparation alone."""
    cluster = cluster_of(MANAGED[0][0])

    plan = planned(tmp_path, cluster, "--format", "kustomize")

    for reference, file, asking in (
        ("ResourceQuota/team/gpus", "prepare/resourcequota.team.gpus.yaml", "prepare.sh"),
        ("Namespace/team", "wave-1/namespace.team.yaml", "switch.sh"),
    ):
        text = f"its patch is kustomize/{file}: commit that folder when {asking} asks for it, not earlier"
        assert f"{reference} is managed by Argo CD: {text}" in notes(plan)
        assert (tmp_path / "plan" / "kustomize" / file).is_file()
        messages = [message for _, _, message in before(tmp_path, cluster)]
        assert any(text in message for message in messages)
    assert "commit kustomize/prepare of the plan" in script(tmp_path, "prepare.sh")
    assert "commit kustomize/wave-1 of the plan" in script(tmp_path, "wave-1/switch.sh")


def test_lines_to_remove_have_no_patch_for_a_repository(tmp_path: Path) -> None:
    cluster = [*cluster_of(MANAGED[0][0]), BOTH_SIDES]

    plan = planned(tmp_path, cluster, "--format", "kustomize")

    text = f"take requests.{GPU} out of the repository when switch.sh says so"
    assert f"ResourceQuota/team/gpus is managed by Argo CD: {text}" in notes(plan)
    messages = {name: (state, message) for state, name, message in before(tmp_path, cluster)}
    state, message = messages["ResourceQuota/team/gpus"]
    assert "note" == state
    assert text in message


@pytest.mark.parametrize(
    ("names", "release"),
    [
        ({"name": "quotas", "namespace": "infra"}, " release infra/quotas"),
        ({"name": "$(reboot)", "namespace": "infra"}, ""),
    ],
)
def test_an_object_of_helm_names_its_release_and_what_an_upgrade_takes_back(
    tmp_path: Path, names: Mapping[str, str], release: str
) -> None:
    """It was to be planned with --format kustomize, and no repository of kustomize has it."""
    annotations = {f"meta.helm.sh/release-{key}": value for key, value in names.items()}

    text = notes(planned(tmp_path, cluster_of({"annotations": annotations})))

    assert f"ResourceQuota/team/gpus is of Helm{release}: an upgrade sets again what the" in text
    assert "--format kustomize" not in text


def test_the_affinity_of_a_plugin_is_in_no_values_of_its_chart(tmp_path: Path) -> None:
    """It was to be set there, and NVIDIA's chart has GPU feature discovery leave switched nodes with it, too."""
    plugin = daemon_set("nvidia-device-plugin")
    plugin["metadata"]["annotations"] = {"meta.helm.sh/release-name": "apps"}

    text = notes(planned(tmp_path, [plugin_node("gpu-0"), plugin]))

    place = "DaemonSet/kube-system/nvidia-device-plugin is of Helm: "
    assert f"{place}an upgrade takes back the affinity that prepare.sh sets" in text
    assert "do not upgrade its chart until the migration is over" in text
    assert "set the same in the values" not in text


def test_an_object_of_nobody_is_no_news(tmp_path: Path) -> None:
    cluster = cluster_of({"managedFields": [{"manager": "kubectl"}]})

    plan = planned(tmp_path, cluster)

    assert {} == plan["managed"]
    assert not any("managed by" in text for _, _, text in before(tmp_path, cluster))


def test_the_managers_are_in_a_snapshot_and_nothing_else_of_their_fields() -> None:
    fields = [
        {"manager": "kubectl", "fieldsV1": {}},
        {"manager": "kustomize-controller", "fieldsV1": {"f:metadata": {}}},
    ]
    team = redact({**namespace("team"), "metadata": {"name": "team", "managedFields": fields}})

    assert [{"manager": "kustomize-controller"}] == team["metadata"]["managedFields"]


def test_patches_for_a_repository_take_the_place_of_kubectl(tmp_path: Path) -> None:
    """Without a sign of Argo CD or Flux all objects are of the repository."""
    cluster = [
        *cluster_of({}),
        *(plugin_node("gpu-0"), plugin_node("gpu-1"), PLUGIN, namespace("science")),
        *workload("train", {GPU: "1"}, ["gpu-0"], namespace="science"),
    ]

    plan = planned(tmp_path, cluster, "--format", "kustomize", "--wave-nodes", 1)

    folder = tmp_path / "plan" / "kustomize"
    patches = {
        (source.kind, source.name): source.document
        for path in sorted(folder.rglob("*.yaml"))
        for source in read_paths([str(path)])
        if source.kind != "Component"
    }
    (component,) = read_paths([str(folder / "prepare" / "kustomization.yaml")])
    targets = {entry["path"]: entry["target"] for entry in component.document["patches"]}
    assert {
        "resourcequota.team.gpus.yaml": {
            "kind": "ResourceQuota",
            "name": "gpus",
            "namespace": "team",
        },
        "daemonset.kube-system.nvidia-device-plugin.yaml": {
            "kind": "DaemonSet",
            "name": "nvidia-device-plugin",
            "namespace": "kube-system",
        },
    } == targets
    label = {"drawbridge.internal/translate": "true"}
    assert label == patches["Namespace", "team"]["metadata"]["labels"]
    assert "deviceclass" in " ".join(patches["ResourceQuota", "gpus"]["spec"]["hard"])
    assert "affinity" in patches["DaemonSet", "nvidia-device-plugin"]["spec"]["template"]["spec"]
    # A quota counts claims before the first pod has one; a label comes after its wave's nodes.
    assert (folder / "prepare" / "resourcequota.team.gpus.yaml").is_file()
    number = next(wave["wave"] for wave in plan["waves"] if "team" in wave["namespaces"])
    assert (folder / f"wave-{number}" / "namespace.team.yaml").is_file()
    switch = script(tmp_path, f"wave-{number}/switch.sh")
    assert [] == changes(switch)
    wait = r"'--for=jsonpath={.metadata.labels.drawbridge\.internal/translate}=true'"
    assert f"kubectl wait namespace/team --timeout=1h {wait}" in switch
    # The class comes with the chart that this script installs, so no repository has it.
    prepared = [name for name, _ in changes(script(tmp_path, "prepare.sh"))]
    assert ["deviceclass/gpu.nvidia.com"] == prepared
    assert "kubectl wait deviceclass" not in script(tmp_path, "prepare.sh")
    assert [] == changes(script(tmp_path, f"wave-{number}/rollback.sh"))
    rollback = script(tmp_path, f"wave-{number}/rollback.sh")
    assert (
        "labelled=\"$(kubectl get namespaces '--selector=kubernetes.io/metadata.name=team,"
        in rollback
    )
    assert "failed" not in {
        state for state, name, _ in before(tmp_path, cluster) if name.startswith("Namespace")
    }
    # Such a plan may be made again.
    planned(tmp_path, cluster, "--wave-nodes", 1)
    assert not folder.exists()


def test_the_class_of_a_driver_from_a_repository_is_mapped_there(tmp_path: Path) -> None:
    """A chart that `prepare.sh` installs itself brings the class, and kustomize ignores a patch of it."""
    driver = daemon_set("gpus")
    driver["metadata"]["namespace"] = "drivers"
    pod = driver["spec"]["template"]["spec"]
    pod["containers"][0]["image"] = "registry.k8s.io/dra-driver-nvidia-gpu:v0.5.0"
    pod["volumes"] = [
        {"name": "registry", "hostPath": {"path": "/var/lib/kubelet/plugins_registry"}}
    ]
    train = workload("train", {GPU: "1"}, ["gpu-0"])
    cluster = [*cluster_of({}), plugin_node("gpu-0"), plugin_node("gpu-1"), PLUGIN, driver, *train]

    planned(
        tmp_path, cluster, "--format", "kustomize", "--driver-release", "repository:drivers/gpus"
    )

    folder = tmp_path / "plan" / "kustomize" / "prepare"
    assert (folder / "deviceclass.gpu.nvidia.com.yaml").is_file()
    assert "kubectl wait deviceclass/gpu.nvidia.com" in script(tmp_path, "prepare.sh")


def test_objects_of_nobody_are_changed_by_the_scripts_beside_those_of_argo_cd(
    tmp_path: Path,
) -> None:
    """They had no command anywhere, and the scripts waited for a commit of objects that no repository has."""
    cluster = [
        *cluster_of(MANAGED[0][0]),
        *(plugin_node("gpu-0"), plugin_node("gpu-1"), PLUGIN, namespace("science")),
        *workload("train", {**SHARE}, ["hami-0"], namespace="science"),
        *workload("native", {GPU: "1"}, ["gpu-0"], namespace="science"),
        {**QUOTA, "metadata": {"name": "own", "namespace": "science"}},
    ]

    plan = planned(tmp_path, cluster, "--format", "kustomize", "--wave-nodes", 1)

    folder = tmp_path / "plan" / "kustomize"
    assert {
        "resourcequota.team.gpus.yaml",
        "namespace.team.yaml",
        "kustomization.yaml",
    } == {path.name for path in folder.rglob("*.yaml")}
    texts = "".join(script(tmp_path, f"wave-{wave['wave']}/switch.sh") for wave in plan["waves"])
    prepared = [name for name, _ in changes(script(tmp_path, "prepare.sh"))]
    assert ["kube-system/daemonset/nvidia-device-plugin", "deviceclass/gpu.nvidia.com"] == prepared
    assert "commit kustomize/prepare" in script(tmp_path, "prepare.sh")
    assert ["science/resourcequota/own", "namespace/science"] == sorted(
        (name for name, _ in changes(texts)), reverse=True
    )
    assert "kubectl wait namespace/team" in texts
    assert 1 == texts.count("kubectl diff --filename")
    assert 1 == texts.count("commit kustomize/wave-")


def test_what_gitops_takes_over_after_a_plan_with_patches_stops_its_wave(tmp_path: Path) -> None:
    """Its script changed such objects itself, for Argo CD to take that back, and the checks said to commit a patch."""
    tracked: dict[str, Any] = {"annotations": {"argocd.argoproj.io/tracking-id": "a:b"}}
    own = cluster_of({})
    seen = namespace("seen")
    seen["metadata"] |= tracked
    rest = [seen, *workload("web", SHARE, ["hami-0"], namespace="seen")]
    plan = planned(tmp_path, [*own, *rest], "--format", "kustomize")
    assert ["Namespace//seen"] == list(plan["managed"])
    now = [*cluster_of(tracked), *rest]

    states = {name: (state, text) for state, name, text in before(tmp_path, now) if "Argo" in text}

    assert {
        "Namespace//seen": "note",
        "Namespace//team": "failed",
        "ResourceQuota/team/gpus": "failed",
    } == {name: state for name, (state, _) in states.items()}
    assert states["Namespace//seen"][1].endswith(
        "commit that folder when switch.sh asks for it, not earlier"
    )
    assert "the folder kustomize has no patch of it" in states["Namespace//team"][1]


def test_a_class_with_a_hostile_name_is_in_no_path(tmp_path: Path) -> None:
    document = planned(tmp_path, [plugin_node("gpu-0"), PLUGIN], "--format", "kustomize")
    classes = {GPU: "../../../escaped", "nvidia.com/mig-1g.5gb": "mig"}
    plan = msgspec.structs.replace(msgspec.convert(document, Plan), mapped_classes=classes)

    files = kustomize_files(plan, {})

    assert "kustomize/prepare/deviceclass.mig.yaml" in files
    assert not any(".." in path for path in files)


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_finds_nothing_in_the_scripts_of_a_repository(tmp_path: Path) -> None:
    node = plugin_node("gpu-0", 4, **{"karpenter.sh/nodepool": "a100"})
    planned(tmp_path, [*cluster_of(MANAGED[0][0]), node, PLUGIN], "--format", "kustomize")

    paths = list((tmp_path / "plan").rglob("*.sh"))
    checked = subprocess.run(
        ["shellcheck", "-x", *paths], capture_output=True, text=True, check=False
    )

    assert "" == checked.stdout


@pytest.mark.parametrize(
    ("pool", "component"),
    [
        ("karpenter.sh/nodepool", Component.KARPENTER),
        ("cloud.google.com/gke-nodepool", Component.CLUSTER_AUTOSCALER),
    ],
)
def test_what_an_autoscaler_does_with_native_pods_is_reported_where_there_are_no_others(
    tmp_path: Path, pool: str, component: Component
) -> None:
    """Notes spoke of claims for pods with resource names only."""
    nodes = [plugin_node(name, 4, **{pool: "a100"}) for name in ("gpu-0", "gpu-1")]
    web = workload("web", {GPU: "1"}, ["gpu-0"])

    plan = planned(tmp_path, [*nodes, PLUGIN, namespace("team"), *web], "--wave-nodes", 1)

    notes = [note for wave in plan["waves"] for note in wave["notes"]]
    told = {Topic.SEES_CLAIMS: False, Topic.EXTENDED_RESOURCES: True, Topic.NATIVE: True}
    assert statements_about(component, Topic.SEES_CLAIMS)
    assert statements_about(component, Topic.EXTENDED_RESOURCES)
    for topic, is_told in told.items():
        for statement in statements_about(component, topic):
            start = f"{statement.sentence} [{statement.source}]: "
            assert any(note.startswith(start) for note in notes) is is_told


@pytest.mark.parametrize(
    ("pool", "component"),
    [
        ("karpenter.sh/nodepool", Component.KARPENTER),
        ("cloud.google.com/gke-nodepool", Component.CLUSTER_AUTOSCALER),
    ],
)
def test_what_an_autoscaler_does_with_claims_is_reported_once(
    tmp_path: Path, pool: str, component: Component
) -> None:
    nodes = [plugin_node(name, 4, **{pool: "a100"}) for name in ("gpu-0", "gpu-1")]

    plan = planned(tmp_path, [*nodes, PLUGIN], "--wave-nodes", 1)

    first, second = plan["waves"]
    assert statements_about(component, Topic.SEES_CLAIMS)
    assert statements_about(component, Topic.SCALE_FROM_ZERO)
    for statement in statements_about(component, Topic.SEES_CLAIMS, Topic.SCALE_FROM_ZERO):
        note = f"{statement.sentence} [{statement.source}]: "
        # The labels of pools belong to clouds and to Karpenter.
        is_known = statement.provider not in {"Cluster API", "externalgrpc"}
        # Each says what to do.
        assert any(text.startswith(note) for text in first["notes"]) == is_known
        assert not any(text.startswith(note) for text in second["notes"])


@pytest.mark.parametrize("pods", [[], workload("web", {GPU: "1"}, ["gpu-0"])])
@pytest.mark.parametrize("pool", ["karpenter.sh/nodepool", "cloud.google.com/gke-nodepool"])
def test_the_end_of_karpenters_nodes_is_reported_once(
    tmp_path: Path, pool: str, pods: list[dict[str, Any]]
) -> None:
    """The annotation that keeps Karpenter from an empty node does not keep it from one that expires."""
    nodes = [plugin_node(name, 4, **{pool: "a100"}) for name in ("gpu-0", "gpu-1")]

    plan = planned(tmp_path, [*nodes, PLUGIN, namespace("team"), *pods], "--wave-nodes", 1)

    first, second = (
        [note for note in wave["notes"] if "expireAfter" in note] for wave in plan["waves"]
    )
    assert [] == second
    text = (
        "Karpenter (1.14) removes a node once its expireAfter is over, 720h by default, also one with the annotation "
        "karpenter.sh/do-not-disrupt [karpenter.sh/preview/reference/annotations; kubernetes-sigs/karpenter pkg/apis/v1 "
        "(the default)]: end all waves before the oldest of these nodes expires (kubectl get nodeclaims shows their age), "
        "or plan for nodes of a NodePool with expireAfter: Never; a change of expireAfter makes the nodes of its NodePool drift"
    )
    assert [text] * pool.startswith("karpenter") == first


@pytest.mark.parametrize(
    ("image", "old", "new"),
    [
        ("registry.k8s.io/autoscaling/cluster-autoscaler:v1.35.0", False, True),
        ("registry.k8s.io/autoscaling/cluster-autoscaler:v1.34.2", True, False),
        ("registry.k8s.io/autoscaling/cluster-autoscaler@sha256:0", True, True),
    ],
)
def test_what_other_releases_of_the_autoscaler_do_is_not_reported(
    tmp_path: Path, image: str, *, old: bool, new: bool
) -> None:
    deployment = api_object(
        "Deployment",
        "cluster-autoscaler",
        "kube-system",
        spec={"template": {"spec": {"containers": [{"name": "c", "image": image}]}}},
    )
    node = plugin_node("gpu-0", 4, **{"cloud.google.com/gke-nodepool": "a100"})

    plan = planned(tmp_path, [node, PLUGIN, deployment])

    notes = " ".join(plan["waves"][0]["notes"])
    assert (old, new) == (
        "Cluster Autoscaler (1.34) sees claims" in notes,
        "Cluster Autoscaler (1.35 and later) sees claims" in notes,
    )


def elastic_quota(namespace_name: str) -> dict[str, Any]:
    return api_object("ElasticQuota", "gpus", namespace_name, spec={"max": {GPU: "4"}})


@pytest.mark.parametrize(
    ("limits", "is_told"), [(SHARE, True), ({GPU: "1"}, False)], ids=["claims", "native"]
)
def test_a_quota_of_others_is_reported_with_the_wave_that_moves_its_pods(
    tmp_path: Path, limits: Mapping[str, str], is_told: bool
) -> None:
    make = hami_node if limits is SHARE else plugin_node
    nodes = [make(f"gpu-{number}") for number in range(3)]
    objects = [*nodes, namespace("team"), *workload("web", limits, ["gpu-0"])]

    plan = planned(tmp_path, [*objects, elastic_quota("team"), elastic_quota("other")])

    notes = [note for wave in plan["waves"] for note in wave["notes"] if "ElasticQuota" in note]
    text = "ElasticQuota/team/gpus counts nvidia.com/gpu: not for the pods that get claims"
    assert notes == ([text] if is_told else [])


@pytest.mark.parametrize(
    ("kind", "text"),
    [("Deployment", "builds its Workload from the translated pod"), ("Job", "from the template")],
)
def test_what_kueue_does_is_reported_with_the_wave_that_moves_its_pods(
    tmp_path: Path, kind: str, text: str
) -> None:
    objects = workload("web", SHARE, ["gpu-0"], kind=kind)
    objects[0]["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "gpus"}
    if kind == "Job":
        objects[0]["apiVersion"] = "batch/v1"
        objects[1]["metadata"]["ownerReferences"][0]["apiVersion"] = "batch/v1"
    nodes = [hami_node(f"gpu-{number}") for number in range(3)]

    plan = planned(tmp_path, [*nodes, namespace("team"), *objects])

    notes = [note for wave in plan["waves"] for note in wave["notes"] if "Kueue" in note]
    assert any(text in note for note in notes)
    assert all("]: " in note for note in notes), "none says what to do"
    assert len(notes) == len(set(notes))


@pytest.mark.parametrize(
    ("label", "limits", "is_told"),
    [
        ("kueue.x-k8s.io/queue-name", {GPU: "1"}, True),
        ("app", {GPU: "1"}, False),
        ("kueue.x-k8s.io/queue-name", {"cpu": "1"}, False),
    ],
    ids=["queued", "not queued", "queued without devices"],
)
def test_what_kueue_does_with_mapped_resource_names_is_reported_once(
    tmp_path: Path, label: str, limits: Mapping[str, str], *, is_told: bool
) -> None:
    """`assess` warned of it, and no page of the plan did."""
    objects = workload("web", limits, ["gpu-0"])
    objects[0]["metadata"]["labels"] = {label: "gpus"}
    nodes = [plugin_node(f"gpu-{number}") for number in range(3)]
    base = [*nodes, namespace("team"), *workload("other", {GPU: "1"}, ["gpu-1"])]

    plan = planned(tmp_path, [*base, *objects], "--wave-nodes", 1)

    (statement,) = statements_about(Component.KUEUE, Topic.EXTENDED_RESOURCES)
    note = (
        f"{statement.sentence} [{statement.source}]: it queues Deployment/team/web, so give gpu.nvidia.com no sources in "
        "its deviceClassMappings"
    )
    told = [[text for text in wave["notes"] if "Kueue" in text] for wave in plan["waves"]]
    assert told == [[note] if is_told else [], [], []]


def test_kueue_is_told_of_each_class_with_its_own_workloads(tmp_path: Path) -> None:
    """The note on the class of whole GPUs named a workload of MIG devices; then no note did, since its class maps the key today."""
    mig = {"nvidia.com/mig-1g.5gb": "1"}
    queued = [*workload("web", {GPU: "1"}, ["gpu-0"]), *workload("slice", mig, ["gpu-1"])]
    for entry in queued:
        entry["metadata"].setdefault("labels", {})["kueue.x-k8s.io/queue-name"] = "gpus"
    nodes = [plugin_node(f"gpu-{number}") for number in range(3)]
    nodes[1]["status"]["allocatable"] = mig
    mapping = device_class(
        "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'mig' && "
        "device.attributes['gpu.nvidia.com'].profile == '1g.5gb'",
        name="mig-1g-5gb",
        extendedResourceName="nvidia.com/mig-1g.5gb",
    )

    plan = planned(tmp_path, [*nodes, mapping, namespace("team"), *queued], "--wave-nodes", 1)

    assert {GPU: "gpu.nvidia.com"} == plan["mappedClasses"]
    whole, part = (note for wave in plan["waves"] for note in wave["notes"] if "Kueue" in note)
    assert whole.endswith(
        "it queues Deployment/team/web, so give gpu.nvidia.com no sources in its deviceClassMappings"
    )
    assert part.endswith(
        "it queues Deployment/team/slice, so give mig-1g-5gb no sources in its deviceClassMappings"
    )


def test_the_last_nodes_of_hami_leave_its_scheduler_without_devices(tmp_path: Path) -> None:
    """A reader was told that it goes on for the other nodes, and there were none."""
    nodes = [*(hami_node(f"hami-{number}") for number in range(2)), plugin_node("gpu-0")]
    objects = [*nodes, namespace("team"), *workload("web", SHARE, ["hami-0"])]

    plan = planned(tmp_path, objects, "--wave-nodes", 1)

    told = [
        note.removeprefix("HAMi's device plugin runs where gpu=on; ")
        for wave in plan["waves"]
        for note in wave["notes"]
        if note.startswith("HAMi's device plugin")
    ]
    last = (
        "no node has it after this wave, so its scheduler has no device to hand out: keep HAMi until no rollback will "
        "follow"
    )
    assert ["its scheduler goes on for the other nodes", last] == told
    assert all(
        any(note.startswith("HAMi's device plugin") for note in wave["notes"])
        is wave["nodes"][0]["name"].startswith("hami-")
        for wave in plan["waves"]
    )


def test_pods_without_devices_that_a_drain_evicts_are_counted(tmp_path: Path) -> None:
    nodes = [hami_node(f"gpu-{number}") for number in range(3)]
    other = workload("other", {"cpu": "40"}, ["gpu-0"], namespace="other")
    agent = workload("agent", {}, ["gpu-0", "gpu-1"], kind="DaemonSet", namespace="other")
    objects = [*nodes, namespace("team"), *workload("web", SHARE, ["gpu-0"]), *other, *agent]

    plan = planned(tmp_path, objects, "--wave-nodes", 1)

    told = {
        node["name"]: any("evict 1 pod without devices" in note for note in wave["notes"])
        for wave in plan["waves"]
        for node in wave["nodes"]
    }
    assert told["gpu-0"]
    # A DaemonSet's pod stays, so nothing leaves this node.
    assert not told["gpu-1"]


def test_a_node_whose_devices_no_plan_knows_is_named(tmp_path: Path) -> None:
    """It was in no wave, and no reason was given."""
    names = {
        "npu": {"huawei.com/Ascend910": "8"},
        "ts": {"nvidia.com/gpu.shared": "32"},
        "nic": {"rdma/hca": "8", "cpu": "8"},
        "off": {"nvidia.com/gpu.shared": "0"},
    }
    nodes = [node(name, amounts, {}, {}) for name, amounts in names.items()]

    held = held_objects(planned(tmp_path, [plugin_node("gpu-0"), namespace("team"), *nodes]))

    assert {"Node//npu", "Node//ts"} == held.keys()
    assert "its device plugin offers nvidia.com/gpu.shared, and" in held["Node//ts"]
    fixes = {entry["object"]: entry["fix"] for entry in document(tmp_path)["held"]}
    assert fixes["Node//ts"].startswith("take the sharing out of the device plugin's configuration")
    assert fixes["Node//npu"].startswith("install the driver and switch the node by hand")


class _CountedObjects(list[SourceObject]):
    """The objects of a cluster, with the number of times that they are gone through."""

    rounds = 0

    def __iter__(self) -> Iterator[SourceObject]:
        type(self).rounds += 1
        return super().__iter__()


@pytest.mark.parametrize("labels", [{}, {"eks.amazonaws.com/nodegroup": "a"}])
def test_waves_that_are_like_others_need_none_of_the_objects(
    tmp_path: Path, labels: dict[str, str]
) -> None:
    """Each of 500 waves went through all objects and all nodes, for two minutes."""
    nodes = [plugin_node(f"gpu-{index}", 4, **labels) for index in range(5)]
    plan = msgspec.convert(planned(tmp_path, [*nodes, PLUGIN], "--wave-nodes", 1), Plan)
    _CountedObjects.rounds = 0
    objects = _CountedObjects(SourceObject(document=own, source="t", line=1) for own in nodes)

    notes = [[*autoscaler_notes(plan, wave, objects, NodesByUse())] for wave in plan.waves]

    assert 5 == len(notes)
    assert bool(labels) is bool(notes[0])
    assert _CountedObjects.rounds <= len(labels)


def test_the_notes_on_a_halt_of_an_autoscaler_go_through_the_objects_once(tmp_path: Path) -> None:
    """Each wave with a label of GPUs went through all objects, and read the labels of all nodes."""
    label = {"k8s.amazonaws.com/accelerator": "h100"}
    nodes = [plugin_node(f"gpu-{index}", 4, **label) for index in range(5)]
    plan = msgspec.convert(planned(tmp_path, [*nodes, PLUGIN], "--wave-nodes", 1), Plan)
    first = plan.waves[0]
    _CountedObjects.rounds = 0
    objects = _CountedObjects(SourceObject(document=own, source="t", line=1) for own in nodes)
    _ = [*autoscaler_notes(plan, first, objects, NodesByUse())]
    of_the_first = _CountedObjects.rounds

    halts = halt_notes(plan.waves, objects)
    notes = [[*autoscaler_notes(plan, wave, objects, NodesByUse(), halts)] for wave in plan.waves]

    halting = ["after this wave" in "".join(own) for own in notes]
    assert [False, False, False, True, False] == halting
    assert 2 * of_the_first + 1 == _CountedObjects.rounds
