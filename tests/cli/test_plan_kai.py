"""Shares of KAI in a plan: the pods of KAI that hold their GPUs, and its webhook."""

import copy
import json
from pathlib import Path
from typing import Any, Final

import pytest

from kube.manifests.dump import dump_yaml
from testing.command import drawbridge
from testing.documents import api_object, namespace
from testing.migration import GPU, hami_node, plugin_node, workload
from testing.plan import checks_before, failed_before, held_objects, planned, run_script, script

ADOPTED: Final = """\
translation:
  adoptSchedulers: {kai-scheduler: default-scheduler}
  profiles: {kai: gpu.nvidia.com}
"""
SHARED: Final = "translation: {adoptSchedulers: {kai-scheduler: default-scheduler}}\n"
"""HAMi's driver serves the shares, on other nodes."""
KEPT: Final = """\
translation:
  adoptSchedulers: {kai-scheduler: kai-scheduler}
  profiles: {nvidia: gpu.nvidia.com}
"""
GPU_PRODUCT: Final = "nvidia.com/gpu.product"
SELECTOR: Final = "'--pod-selector=app!=kai-resource-reservation'"
RESERVATION: Final = "gpu-reservation-gpu-0-abcde"


def reservation(group: str = "g1", node: str = "gpu-0", name: str = RESERVATION) -> dict[str, Any]:
    """The pod that KAI's binder creates to hold a GPU."""
    limits = {GPU: "1"}
    return api_object(
        "Pod",
        name,
        "kai-resource-reservation",
        labels={"app": "kai-resource-reservation", "runai-gpu-group": group},
        annotations={"karpenter.sh/do-not-disrupt": "true", "run.ai/reserve_for_gpu_index": "0"},
        spec={
            "nodeName": node,
            "containers": [
                {"name": "resource-reservation", "image": "a", "resources": {"limits": limits}}
            ],
        },
    )


def sharing(name: str, groups: list[str], memory: str = "8000") -> list[Any]:
    """A Deployment with shares on gpu-0, one pod for each group."""
    objects = workload(name, {"cpu": "1"}, ["gpu-0"] * len(groups), schedulerName="kai-scheduler")
    for metadata in (objects[0]["spec"]["template"]["metadata"], objects[1]["metadata"]):
        metadata["annotations"] = {"gpu-memory": memory}
    for pod, group in zip(objects[1:], groups, strict=True):
        pod["metadata"]["annotations"] = {"gpu-memory": memory}
        pod["metadata"]["labels"] = {**pod["metadata"]["labels"], "runai-gpu-group": group}
    return objects


def cluster(*groups: str) -> list[Any]:
    """Nodes with a device plugin and one of HAMi, and shares of KAI on one of them."""
    return [
        hami_node("hami-0"),
        *(plugin_node(f"gpu-{number}") for number in range(3)),
        *(namespace("team"), namespace("kai-resource-reservation")),
        *sharing("web", list(groups) or ["g1", "g1"]),
        reservation(),
    ]


def settings(tmp_path: Path, text: str = ADOPTED) -> Path:
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    return file


def test_pods_of_kai_that_hold_a_gpu_are_no_pods_of_people(tmp_path: Path) -> None:
    """They were native pods to be deleted by hand, and applied again after the wave; deletion ends all shares of the GPU."""
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(cluster()))
    options = ("--settings", settings(tmp_path))

    answer = json.loads(drawbridge("assess", "--snapshot", file, *options, "-o", "json").stdout)
    plan = planned(tmp_path, cluster(), *options)

    assert ["Deployment/team/web"] == [entry["object"] for entry in answer["workloads"]]
    texts = {key: str(value) for wave in plan["waves"] for key, value in wave.items()}
    assert {"notes"} == {key for key, text in texts.items() if RESERVATION in text} | {"notes"}
    assert RESERVATION not in str({key: value for key, value in plan.items() if key != "waves"})
    (wave,) = (
        wave for wave in plan["waves"] if "gpu-0" in {node["name"] for node in wave["nodes"]}
    )
    (note,) = (note for note in wave["notes"] if RESERVATION in note)
    assert "drains leave them, and KAI deletes each once no pod shares its GPU any more" in note
    assert "apply their manifests" not in (tmp_path / "plan" / "README.md").read_text()


def test_a_drain_leaves_the_pods_of_kai_that_hold_a_gpu(tmp_path: Path) -> None:
    """`kubectl drain` stops at pods without a controller, and KAI deletes these once it has evicted the others."""
    plan = planned(tmp_path, cluster(), "--settings", settings(tmp_path))

    for wave in plan["waves"]:
        for name in ("switch", "rollback"):
            drains = [
                line
                for line in script(tmp_path, name, wave["wave"]).splitlines()
                if "kubectl drain" in line and not line.lstrip().startswith("#")
            ]
            assert all(SELECTOR in line for line in drains)
            assert len(wave["nodes"]) == len(drains)


def test_the_dry_run_of_a_drain_leaves_them_too(tmp_path: Path) -> None:
    """It announced that they are deleted, since it forces the deletion of pods without a controller."""
    plan = planned(tmp_path, cluster(), "--settings", settings(tmp_path))

    drains = [
        line
        for wave in plan["waves"]
        for line in script(tmp_path, "preflight", wave["wave"]).splitlines()
        if line.startswith("kubectl drain")
    ]
    assert [wave["wave"] for wave in plan["waves"] if wave["nodes"]]
    assert all(SELECTOR in line and "--dry-run=server" in line for line in drains)


def test_drains_of_a_cluster_without_kai_evict_all(tmp_path: Path) -> None:
    plan = planned(tmp_path, cluster()[:-1], "--settings", settings(tmp_path))

    assert "--pod-selector" not in "".join(
        script(tmp_path, "switch", wave["wave"]) for wave in plan["waves"]
    )


def test_labels_of_a_tenant_change_no_drain(tmp_path: Path) -> None:
    """A label `app` that the pods of others have as well kept these from the drains of all nodes."""
    forged = reservation()
    forged["metadata"].update(namespace="team", labels={"app": "web", "runai-gpu-group": "g9"})

    planned(tmp_path, [*cluster()[:-1], forged], "--settings", settings(tmp_path))

    assert "app!=web" not in "".join(path.read_text() for path in (tmp_path / "plan").rglob("*.sh"))


def test_a_pod_that_a_drain_would_leave_stops_a_wave(tmp_path: Path) -> None:
    """It would run on with its device of the plugin, and the DRA driver of its node would hand the same one out."""
    plan = planned(tmp_path, cluster(), "--settings", settings(tmp_path))
    number = next(
        wave["wave"]
        for wave in plan["waves"]
        if "gpu-0" in {node["name"] for node in wave["nodes"]}
    )
    objects = cluster()
    objects[-2]["metadata"]["labels"]["app"] = "kai-resource-reservation"

    before = checks_before(tmp_path, cluster(), number)
    checks = checks_before(tmp_path, objects, number)

    left = f"would leave team/{objects[-2]['metadata']['name']}, which KAI has not created"
    assert ["failed"] == [check["state"] for check in checks if left in check["message"]]
    assert left not in str(before)


@pytest.mark.parametrize(
    ("groups", "free"), [(("g1", "g1"), 13), (("g1", "g2"), 12)], ids=["one", "two"]
)
def test_each_group_of_kai_has_a_gpu(tmp_path: Path, groups: tuple[str, ...], free: int) -> None:
    """Each pod counted as a GPU of its own, beside the pods of KAI that hold these. There are 14 GPUs."""
    plan = planned(tmp_path, cluster(*groups), "--settings", settings(tmp_path, SHARED))

    assert free == plan["waves"][0]["freeForKeys"]["before"]


# --- KAI's webhook --------------------------------------------------------------------------------


def changed(objects: list[Any]) -> list[Any]:
    """Objects with pods as KAI's webhook leaves them."""
    for pod in objects:
        if pod["kind"] == "Pod" and "gpu-memory" in pod["metadata"].get("annotations", {}):
            pod["metadata"]["annotations"]["runai/shared-gpu-configmap"] = "web-abc-shared-gpu"
            reference = {"key": "NVIDIA_VISIBLE_DEVICES", "name": "web-abc-shared-gpu-0"}
            pod["spec"] = copy.deepcopy(pod["spec"])
            pod["spec"]["containers"][0]["env"] = [
                {"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"configMapKeyRef": reference}}
            ]
    return objects


def changed_cluster(*more: Any) -> list[Any]:
    """The cluster with such pods, and with further objects."""
    return [*changed(cluster()), *more]


def config(**selector: str) -> Any:
    spec = {"global": {"namespaceLabelSelector": selector}}
    return api_object("Config", "kai-config", api_version="kai.scheduler/v1", spec=spec)


def kai_notes(tmp_path: Path, objects: list[Any]) -> list[dict[str, Any]]:
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(objects))
    options = ("--settings", settings(tmp_path), "-o", "json")
    answer = json.loads(drawbridge("assess", "--snapshot", file, *options).stdout)
    assert "kaiWebhook" not in {entry["code"] for entry in answer["blockers"]}
    return [entry for entry in answer["notes"] if entry["code"] == "kaiWebhook"]


@pytest.mark.parametrize(
    "more", [[], [config()], [config(**{"kubernetes.io/metadata.name": "team"})]]
)
def test_shares_that_kais_webhook_changes_have_a_note_until_it_leaves_their_namespace(
    tmp_path: Path, more: list[Any]
) -> None:
    """The webhook rejects each next pod of them, and neither assess nor plan said so.

    A blocker asked for it before the first wave, when KAI would start no further share there.
    """
    objects = changed_cluster(*more)
    team = next(entry for entry in objects if entry["kind"] == "Namespace")
    team["metadata"]["labels"] = {"kubernetes.io/metadata.name": "team"}

    (entry,) = kai_notes(tmp_path, objects)
    plan = planned(tmp_path, objects, "--settings", settings(tmp_path))

    assert ["Deployment/team/web"] == entry["objects"]
    assert "right before team is opted in" in entry["fix"]
    assert "spec.global.namespaceLabelSelector of KAI's Config" in entry["fix"]
    for wave in plan["waves"]:
        notes = [note for note in wave["notes"] if "namespaceLabelSelector" in note]
        assert (wave["namespaces"] == ["team"]) is (len(notes) == 1)


@pytest.mark.parametrize(
    "objects",
    [cluster(), changed_cluster(config(kai="on"))],
    ids=["without the webhook", "left by it"],
)
def test_shares_that_kais_webhook_leaves_alone_have_no_note(
    tmp_path: Path, objects: list[Any]
) -> None:
    plan = planned(tmp_path, objects, "--settings", settings(tmp_path))

    assert [] == kai_notes(tmp_path, objects)
    assert "namespaceLabelSelector" not in str(plan["waves"])


def test_shares_that_stay_keep_kais_webhook_where_others_of_their_namespace_move(
    tmp_path: Path,
) -> None:
    """A wave of pods with whole GPUs had a stop for it, and the shares that are held would not have started again."""
    whole = workload("whole", {GPU: "1"}, ["gpu-1"], schedulerName="kai-scheduler")
    objects = [entry for entry in changed_cluster(*whole) if entry["metadata"]["name"] != "hami-0"]

    plan = planned(tmp_path, objects, "--settings", settings(tmp_path, SHARED))

    moved = {
        name
        for wave in plan["waves"]
        for part in wave["partialNamespaces"]
        for name in part["workloads"]
    }
    assert {"Deployment/team/whole"} == moved
    assert [] == [name for wave in plan["waves"] for name in wave["kaiNamespaces"]]
    assert "namespaceLabelSelector" not in str(plan["waves"])


KUBECTL: Final = """
case "$*" in
  "api-resources"*) exit 1 ;;
  "get customresourcedefinitions.apiextensions.k8s.io configs.kai.scheduler --ignore-not-found "*) echo @KINDS@ ;;
  *"get configs.kai.scheduler "*) printf %s "@SELECTOR@" ;;
  *"get namespaces --selector=kai=on "*) printf %s "@CHOSEN@" ;;
  *"get namespaces --output=jsonpath={.items[*].metadata.name}"*) printf %s "other team" ;;
  *"get namespace/team "*) echo @TEAM@ ;;
esac
"""


def kubectl_with(**values: str) -> str:
    """KUBECTL with the answers of a cluster."""
    kubectl = KUBECTL
    for name, value in values.items():
        kubectl = kubectl.replace(f"@{name.upper()}@", value)
    return kubectl


@pytest.mark.parametrize(
    ("name", "kinds", "selector", "chosen", "expected"),
    [
        ("switch", "configs.kai.scheduler", ",", "", "KAI's webhook changes pods of team: set"),
        ("switch", "configs.kai.scheduler", ",kai=on,", "a team b", "changes pods of team: set"),
        ("switch", "configs.kai.scheduler", ",kai=on,", "team-2 a", ""),
        ("switch", "configs.kai.scheduler", "", "", "there is no Config of KAI"),
        ("switch", "", "", "", "there is no Config of KAI"),
        ("rollback", "configs.kai.scheduler", ",kai=on,", "a", "does not change pods of team, so"),
        ("rollback", "configs.kai.scheduler", ",kai=on,", "team", ""),
        ("rollback", "configs.kai.scheduler", ",", "", ""),
        ("rollback", "configs.kai.scheduler", "", "", "there is no Config of KAI"),
    ],
)
def test_scripts_stop_until_kais_webhook_leaves_or_takes_a_namespace(
    tmp_path: Path, *, name: str, kinds: str, selector: str, chosen: str, expected: str
) -> None:
    """Between the drains and the opt-in was no place to change KAI's Config, and the way back asked to leave KAI once more.

    `kubectl api-resources` fails while an aggregated API, as that of metrics, is down, and both scripts stopped.
    """
    plan = planned(tmp_path, changed_cluster(), "--settings", settings(tmp_path))
    (wave,) = (wave for wave in plan["waves"] if wave["kaiNamespaces"])
    kubectl = kubectl_with(kinds=kinds, selector=selector, chosen=chosen, team="namespace/team")

    ran = run_script(
        *(tmp_path, f"wave-{wave['wave']}/{name}.sh", {"kubectl": kubectl}),
        ("--step", "namespaces"),
    )

    assert ["team"] == wave["kaiNamespaces"]
    assert expected in ran.stderr
    calls = (tmp_path / "calls").read_text().splitlines()
    is_labelled = any(call.startswith("kubectl patch namespace/team") for call in calls)
    is_stopped = "then run again" in ran.stderr
    assert is_stopped is (bool(expected) and bool(selector))
    assert is_labelled is not (is_stopped and name == "switch")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), " --step=namespaces, and after it with --step=restarts and --step=end, without"),
        (("--step", "namespaces"), " --step=namespaces\n"),
    ],
)
def test_the_stop_for_kai_names_the_steps_that_are_left(
    tmp_path: Path, options: tuple[str, ...], expected: str
) -> None:
    """A whole run was to be run again, with another drain of each node."""
    plan = planned(tmp_path, changed_cluster(), "--settings", settings(tmp_path))
    (wave,) = (wave["wave"] for wave in plan["waves"] if wave["kaiNamespaces"])
    kubectl = kubectl_with(kinds="a", selector=",", chosen="", team="namespace/team")
    name = f"wave-{wave}/switch.sh"

    ran = run_script(tmp_path, name, {"kubectl": kubectl}, options)

    assert "its pod grouper leaves them, too, so KAI starts no pod there" in ran.stderr
    assert f"then run again: {tmp_path}/plan/{name}{expected}" in ran.stderr
    assert ("kubectl drain" in (tmp_path / "calls").read_text()) is (not options)


def test_the_way_back_leaves_out_a_namespace_that_is_gone(tmp_path: Path) -> None:
    """Nobody could give it the label of KAI's Config, so `rollback.sh` never went on."""
    plan = planned(tmp_path, changed_cluster(), "--settings", settings(tmp_path))
    (wave,) = (wave["wave"] for wave in plan["waves"] if wave["kaiNamespaces"])
    kubectl = kubectl_with(kinds="configs.kai.scheduler", selector=",kai=on,", chosen="a", team="")

    ran = run_script(
        *(tmp_path, f"wave-{wave}/rollback.sh", {"kubectl": kubectl}), ("--step", "namespaces")
    )

    assert 0 == ran.returncode, ran.stderr
    assert "namespace/team was deleted since the plan was made" in ran.stdout
    assert "then run again" not in ran.stderr


def test_a_namespace_whose_shares_stay_with_kai_keeps_its_webhook(tmp_path: Path) -> None:
    """Its next shares would never start: without its webhook KAI binds none."""
    objects = changed_cluster(
        *workload("whole", {GPU: "1"}, ["gpu-1"], schedulerName="kai-scheduler")
    )
    options = ("--settings", settings(tmp_path, KEPT))

    plan = planned(tmp_path, objects, *options)

    assert "namespaceLabelSelector" not in str(plan["waves"])


# --- other pods of KAI in the namespace -----------------------------------------------------------


def opted_out(objects: list[Any]) -> list[Any]:
    objects[0]["spec"]["template"]["metadata"]["labels"] = {
        "drawbridge.internal/translate": "false"
    }
    for pod in objects[1:]:
        pod["metadata"]["labels"]["drawbridge.internal/translate"] = "false"
    return objects


OTHERS: Final = {
    "without devices": workload("other", {"cpu": "1"}, ["gpu-2"], schedulerName="kai-scheduler"),
    "without pods": workload("other", {"cpu": "1"}, [], schedulerName="kai-scheduler"),
    "opted out": opted_out(workload("other", {GPU: "1"}, ["gpu-2"], schedulerName="kai-scheduler")),
    "unserved": workload(
        *("other", {GPU: "1", "nvidia.com/gpumem": "8000"}, ["gpu-2"]),
        schedulerName="kai-scheduler",
        nodeSelector={GPU_PRODUCT: "NVIDIA-H100"},
    ),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_shares_stay_where_kai_has_to_go_on_in_their_namespace(
    tmp_path: Path, other: list[Any]
) -> None:
    """KAI had to leave the namespace as a whole, and no next pod of the other one would have started."""
    whole = workload("whole", {GPU: "1"}, ["gpu-1"], schedulerName="kai-scheduler")
    objects = changed_cluster(*whole, *copy.deepcopy(other))
    file = tmp_path / "cluster.yaml"

    plan = planned(tmp_path, objects, "--settings", settings(tmp_path))
    file.write_text(dump_yaml(objects))
    options = ("--settings", settings(tmp_path), "-o", "json")
    answer = json.loads(drawbridge("assess", "--snapshot", file, *options).stdout)

    text = "Deployment/team/other would go on with KAI's scheduler there"
    assert text in held_objects(plan)["Deployment/team/web"]
    assert "with shares that KAI's webhook changes" in held_objects(plan)["Node//gpu-0"]
    assert [["Deployment/team/whole"]] == [
        part["workloads"] for wave in plan["waves"] for part in wave["partialNamespaces"]
    ]
    assert [] == [name for wave in plan["waves"] for name in wave["kaiNamespaces"]]
    assert "namespaceLabelSelector" not in str(plan["waves"])
    (blocker,) = (entry for entry in answer["blockers"] if entry["code"] == "kaiWebhook")
    assert text in blocker["message"]
    assert ["Deployment/team/web"] == blocker["objects"]
    assert [] == [entry for entry in answer["notes"] if entry["code"] == "kaiWebhook"]


def test_a_share_that_no_node_serves_keeps_kai_for_the_others(tmp_path: Path) -> None:
    """`assess` asked to have KAI leave its namespace all the same."""
    stuck = sharing("stuck", ["g2"])
    for entry in (stuck[0]["spec"]["template"], stuck[1]):
        entry["spec"] = {**entry["spec"], "nodeSelector": {GPU_PRODUCT: "NVIDIA-H100"}}
    objects = changed_cluster(*changed(stuck))
    file = tmp_path / "cluster.yaml"

    plan = planned(tmp_path, objects, "--settings", settings(tmp_path, SHARED))
    file.write_text(dump_yaml(objects))
    options = ("--settings", settings(tmp_path, SHARED), "-o", "json")
    answer = json.loads(drawbridge("assess", "--snapshot", file, *options).stdout)

    text = "Deployment/team/stuck would go on with KAI's scheduler there"
    assert text in held_objects(plan)["Deployment/team/web"]
    assert "no node would serve them" in held_objects(plan)["Deployment/team/stuck"]
    assert [["Deployment/team/web"]] == [
        entry["objects"] for entry in answer["blockers"] if text in entry["message"]
    ]
    assert [] == [entry for entry in answer["notes"] if entry["code"] == "kaiWebhook"]


def test_a_namespace_that_moves_in_parts_leaves_kai_in_one_wave(tmp_path: Path) -> None:
    """A share moved in a wave, and other pods of KAI in a later one: between both KAI would have started none of these."""
    stuck = workload(
        *("stuck", {GPU: "1", "nvidia.com/gpumem": "8000"}, ["gpu-2"]),
        nodeSelector={GPU_PRODUCT: "NVIDIA-H100"},
    )
    whole = workload("whole", {GPU: "1"}, ["gpu-1"] * 4, schedulerName="kai-scheduler")
    nodes = [plugin_node(f"gpu-{number}") for number in range(3, 6)]

    plan = planned(
        *(tmp_path, changed_cluster(*nodes, *whole, *stuck), "--wave-nodes", "1"),
        *("--settings", settings(tmp_path)),
    )

    assert "Deployment/team/stuck" in held_objects(plan)
    assert [["Deployment/team/web", "Deployment/team/whole"]] == [
        sorted(part["workloads"]) for wave in plan["waves"] for part in wave["partialNamespaces"]
    ]
    assert [["team"]] == [wave["kaiNamespaces"] for wave in plan["waves"] if wave["kaiNamespaces"]]


def test_shares_wait_for_pods_of_kai_that_move_with_their_namespace_alone(tmp_path: Path) -> None:
    """A pod without a controller gets claims with its whole namespace alone, and here that never moves."""
    stuck = workload(
        *("stuck", {GPU: "1", "nvidia.com/gpumem": "8000"}, ["gpu-2"]),
        nodeSelector={GPU_PRODUCT: "NVIDIA-H100"},
    )
    _, pod = workload("bare", {GPU: "1"}, ["gpu-1"], schedulerName="kai-scheduler")
    del pod["metadata"]["ownerReferences"]

    plan = planned(tmp_path, changed_cluster(pod, *stuck), "--settings", settings(tmp_path))

    assert "Pod/team/bare-0 would go on" in held_objects(plan)["Deployment/team/web"]
    assert [] == [name for wave in plan["waves"] for name in wave["kaiNamespaces"]]


def test_a_pod_of_kai_that_has_come_since_stops_the_wave_of_its_namespace(tmp_path: Path) -> None:
    plan = planned(tmp_path, changed_cluster(), "--settings", settings(tmp_path))
    (wave,) = (wave["wave"] for wave in plan["waves"] if wave["kaiNamespaces"])

    before = failed_before(tmp_path, changed_cluster(), wave)
    failed = failed_before(tmp_path, changed_cluster(*OTHERS["without devices"]), wave)

    assert "Deployment/team/web" not in before
    assert "Deployment/team/other would go on" in failed["Deployment/team/web"]
