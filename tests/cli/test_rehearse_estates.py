"""Clusters that `drawbridge rehearse` did not bring to the end of their plan: each has the cause that stopped it."""

from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml

from cli.verbs.rehearse import command as rehearse
from cli.verbs.rehearse.page import format_rehearsal_page
from cli.verbs.rehearse.text import format_rehearsal
from kube.manifests.reader import read_paths
from migration.plan.model.plan import Plan
from migration.rehearsal.build import build_rehearsal
from migration.rehearsal.model import RehearsalAnswer, RehearsalInput, ScriptRun
from process.profiles.profile_files import load_profiles
from testing.command import EXAMPLES, drawbridge
from testing.documents import api_object, namespace
from testing.migration import SHARE, WHOLE, daemon_set, hami_node, plugin_node, workload
from testing.rehearsals import FAILED
from translation.cluster.snapshot import TranslationOptions

KOORDINATOR: Final = EXAMPLES / "migration" / "koordinator" / "before.yaml"
TRACKED: Final = {"argocd.argoproj.io/tracking-id": "llm:/Namespace:team"}
FLAGS: Final = ("--wave-nodes", "1", "--gpu-operator", "none", "--driver-release", "none")


def rehearsal_of(path: Path, plan: Path) -> RehearsalInput:
    """The rehearsal of a cluster with the plan that `drawbridge plan` makes of it."""
    drawbridge("plan", "--snapshot", path, *FLAGS, "-o", plan)
    (source,) = read_paths([str(plan / "plan.yaml")])
    objects = tuple(read_paths([str(path)]))
    planned = msgspec.convert(source.document, Plan)
    return build_rehearsal(planned, objects, load_profiles(), TranslationOptions(), "default")


def written(folder: Path, objects: list[dict[str, Any]]) -> Path:
    """The snapshot of a cluster with these objects."""
    path = folder / "cluster.yaml"
    path.write_text(yaml.safe_dump_all([namespace("kube-system"), namespace("team"), *objects]))
    return path


def names(rehearsal: RehearsalInput, kind: str) -> list[str]:
    return [entry["metadata"]["name"] for entry in rehearsal.objects if entry["kind"] == kind]


# --- Koordinator ----------------------------------------------------------------------------------


def test_koordinators_devices_are_there_with_their_kind(tmp_path: Path) -> None:
    """switch.sh deletes them, and kubectl failed, since their kind was unknown."""
    rehearsal = rehearsal_of(KOORDINATOR, tmp_path / "plan")

    assert ["devices.scheduling.koordinator.sh"] == names(rehearsal, "CustomResourceDefinition")
    assert ["koord-0", "koord-1", "koord-2"] == names(rehearsal, "Device")


def test_objects_in_a_namespace_that_the_snapshot_lacks_have_it(tmp_path: Path) -> None:
    """koordlet is in such a one, and the API server rejected it."""
    rehearsal = rehearsal_of(KOORDINATOR, tmp_path / "plan")

    assert "koordlet" in names(rehearsal, "DaemonSet")
    assert "koordinator-system" in names(rehearsal, "Namespace")


# --- device plugins -------------------------------------------------------------------------------


def test_the_namespace_of_a_device_plugin_is_of_administrators(tmp_path: Path) -> None:
    """Its pods have no directory of their node in a rehearsal, so preflight.sh would not take it for a plugin."""
    plugin = daemon_set("nvidia-device-plugin")
    plugin["metadata"]["namespace"] = "gpus"
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "nvidia-device-plugin"}
    directory = {"name": "p", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}
    pod = api_object(
        *("Pod", "nvidia-device-plugin-x", "gpus"),
        ownerReferences=[{**owner, "controller": True}],
        spec={"containers": [{"name": "c"}], "nodeName": "g0", "volumes": [directory]},
    )

    rehearsal = rehearsal_of(written(tmp_path, [plugin_node("g0"), plugin, pod]), tmp_path / "plan")

    assert {"kube-system": None, "gpus": {"pod-security.kubernetes.io/enforce": "privileged"}} == {
        entry["metadata"]["name"]: entry["metadata"].get("labels") or None
        for entry in rehearsal.objects
        if entry["kind"] == "Namespace" and entry["metadata"]["name"] != "team"
    }


# --- local volumes --------------------------------------------------------------------------------


def index(count: int, nodes: list[str], local: int) -> list[dict[str, Any]]:
    """A StatefulSet with claims of its template; the first ones of its pods have volumes of their nodes."""
    owner, *pods = workload("index", WHOLE, nodes, kind="StatefulSet")
    owner["spec"] |= {
        "replicas": count,
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}],
    }
    objects = [owner, *pods]
    for number, pod in enumerate(pods):
        claim = f"data-index-{number}"
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
        pod["spec"] = {**pod["spec"], "volumes": [volume]}
        if number < local:
            spec = {"volumeName": f"disk-{number}"}
            objects.append(api_object("PersistentVolumeClaim", claim, "team", spec=spec))
            disk = api_object("PersistentVolume", f"disk-{number}", spec={"local": {"path": "/d"}})
            objects.append(disk)
    return objects


def hosts(rehearsal: RehearsalInput) -> dict[str, list[str]]:
    """Volume to the hosts that reach it; none for a volume of all."""
    hosts = {}
    for entry in rehearsal.objects:
        if entry["kind"] == "PersistentVolume":
            (term,) = entry["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
            (expression,) = term["matchExpressions"]
            hosts[entry["metadata"]["name"]] = expression.get("values", [])
    return hosts


def test_each_pod_of_a_stateful_set_comes_back_to_its_own_volume(tmp_path: Path) -> None:
    """It was not rehearsed with volumes of several nodes, although its pods keep their names."""
    nodes = [plugin_node(f"gpu-{number}") for number in range(2)]

    rehearsal = rehearsal_of(
        written(tmp_path, [*nodes, *index(2, ["gpu-0", "gpu-1"], 2)]), tmp_path / "plan"
    )

    assert {"disk-0": ["gpu-0"], "disk-1": ["gpu-1"]} == hosts(rehearsal)
    assert ("gpu-0",) == rehearsal.places["Pod/team/index-0"]
    assert ("gpu-1",) == rehearsal.places["Pod/team/index-1"]
    assert () == rehearsal.left_out


def test_no_pod_of_a_stateful_set_waits_for_a_volume_that_is_not_there(tmp_path: Path) -> None:
    """With one local volume all claims of the template were made, and those without a volume waited for ever."""
    nodes = [plugin_node(f"gpu-{number}") for number in range(2)]

    rehearsal = rehearsal_of(
        written(tmp_path, [*nodes, *index(3, ["gpu-0", "gpu-1"], 1)]), tmp_path / "plan"
    )

    own, *volumes = hosts(rehearsal).items()
    assert ("disk-0", ["gpu-0"]) == own
    assert [[], []] == [nodes for _, nodes in volumes]
    assert 3 == len(names(rehearsal, "PersistentVolumeClaim"))


@pytest.mark.parametrize(
    ("fields", "claims"),
    [
        ({"replicas": 3}, ["data-index-0", "data-index-1", "data-index-2"]),
        (
            {"replicas": 2, "ordinals": {"start": 1}},
            ["data-index-0", "data-index-1", "data-index-2"],
        ),
        ({"replicas": 0}, ["data-index-0", "data-index-1"]),
        ({"replicas": "x"}, ["data-index-0", "data-index-1"]),
        ({"replicas": 2, "ordinals": {"start": "x"}}, ["data-index-0", "data-index-1"]),
    ],
)
def test_claims_of_a_stateful_set_are_those_of_its_ordinals(
    tmp_path: Path, fields: dict[str, Any], claims: list[str]
) -> None:
    """A text in place of a number ended the rehearsal with a traceback, and one scaled to 0 had a claim more."""
    nodes = [plugin_node(f"gpu-{number}") for number in range(2)]
    owner, *others = index(2, ["gpu-0", "gpu-1"], 2)
    owner["spec"] |= fields

    rehearsal = rehearsal_of(written(tmp_path, [*nodes, owner, *others]), tmp_path / "plan")

    assert claims == sorted(names(rehearsal, "PersistentVolumeClaim"))


def test_a_volume_is_of_one_node_only(tmp_path: Path) -> None:
    """The API server rejects another affinity of the same PersistentVolume, and the rehearsal ended."""
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "shared"}}
    pods = [
        entry
        for number in range(2)
        for entry in workload(f"web-{number}", WHOLE, [f"gpu-{number}"], volumes=[claim])
    ]
    shared = [
        api_object("PersistentVolumeClaim", "shared", "team", spec={"volumeName": "disk"}),
        api_object("PersistentVolume", "disk", spec={"hostPath": {"path": "/d"}}),
    ]
    nodes = [plugin_node(f"gpu-{number}") for number in range(2)]

    rehearsal = rehearsal_of(written(tmp_path, [*nodes, *pods, *shared]), tmp_path / "plan")

    assert {"disk": ["gpu-0"]} == hosts(rehearsal)
    (text,) = rehearsal.left_out
    assert text.startswith("Deployment/team/web-1: its PersistentVolumes")


def test_volumes_have_names_that_the_api_server_takes(tmp_path: Path) -> None:
    """Names of a namespace and a claim were too long together, or those of another namespace and claim."""
    objects = [plugin_node("gpu-0"), plugin_node("gpu-1")]
    for place, own in (("n" * 63, "c" * 200), ("team", "own-data"), ("team-own", "data")):
        owner, pod = workload("web", WHOLE, ["gpu-0"], kind="StatefulSet", namespace=place)
        template = {"metadata": {"name": own}, "spec": {}}
        owner["spec"] |= {"replicas": 2, "volumeClaimTemplates": [template]}
        claim, disk = f"{own}-web-0", f"disk-{len(objects)}"
        volume = {"name": "own", "persistentVolumeClaim": {"claimName": claim}}
        pod["spec"] = {**pod["spec"], "volumes": [volume]}
        objects += [
            *(owner, pod),
            api_object("PersistentVolumeClaim", claim, place, spec={"volumeName": disk}),
            api_object("PersistentVolume", disk, spec={"local": {"path": "/d"}}),
        ]

    rehearsal = rehearsal_of(written(tmp_path, objects), tmp_path / "plan")

    volumes = names(rehearsal, "PersistentVolume")
    assert 6 == len(set(volumes)) == len(volumes)
    assert max(map(len, volumes)) <= 253


# --- stops that are known before anything is started --------------------------------------------------


def managed(tmp_path: Path) -> Path:
    """A cluster with HAMi, and a namespace of Argo CD."""
    nodes = [hami_node("hami-0"), hami_node("hami-1")]
    path = written(tmp_path, [*nodes, *workload("web", SHARE, ["hami-0"])])
    documents = list(yaml.safe_load_all(path.read_text()))
    documents[1]["metadata"]["annotations"] = TRACKED
    path.write_text(yaml.safe_dump_all(documents))
    return path


def test_a_plan_that_a_repository_stops_is_not_begun(tmp_path: Path) -> None:
    """Its waves ran up to the first with an object of Argo CD, and stopped there after minutes."""
    result = drawbridge("rehearse", "--snapshot", managed(tmp_path), *FLAGS)

    assert 2 == result.exit_code
    assert "so nothing was started" in result.stderr
    assert "would take its change of Namespace/team back" in result.stderr
    assert "--format kustomize" in result.stderr


def test_a_plan_for_a_repository_is_rehearsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There was no flag for it."""
    monkeypatch.setattr(rehearse, "_run", lambda *_: FAILED)
    keep = tmp_path / "kept"

    result = drawbridge(
        "rehearse", "--snapshot", managed(tmp_path), *FLAGS, "--format=kustomize", "--keep", keep
    )

    assert 1 == result.exit_code, result.stderr
    assert (keep / "plan" / "kustomize" / "wave-1" / "namespace.team.yaml").exists()


def test_a_device_plugin_that_would_stay_is_told_before_anything_is_started(tmp_path: Path) -> None:
    """The first preflight check failed, and said that the cluster had no device plugin, although it had one elsewhere."""
    plugin = daemon_set("nvidia-device-plugin", nodeSelector={"pool": "other"})
    plugin["spec"]["template"]["spec"]["containers"][0]["image"] = "k8s-device-plugin:v0.17.0"
    nodes = [plugin_node("gpu-0"), plugin_node("gpu-1")]

    result = drawbridge(
        "rehearse",
        *("--snapshot", written(tmp_path, [*nodes, plugin, *workload("web", WHOLE, ["gpu-0"])])),
        *FLAGS,
    )

    assert 2 == result.exit_code
    assert "preflight.sh stops wave 1 at Node/gpu-" in result.stderr
    assert "kube-system/nvidia-device-plugin runs elsewhere" in result.stderr
    assert "--plugin-label KEY=VALUE" in result.stderr


# --- the answer -----------------------------------------------------------------------------------


def test_workloads_of_unknown_kinds_are_named_with_what_follows(tmp_path: Path) -> None:
    owner, pod = workload("lab", WHOLE, ["gpu-0"], kind="Notebook")
    owner["apiVersion"] = pod["metadata"]["ownerReferences"][0]["apiVersion"] = "kubeflow.org/v1"

    rehearsal = rehearsal_of(
        written(tmp_path, [plugin_node("gpu-0"), plugin_node("gpu-1"), owner, pod]),
        tmp_path / "plan",
    )

    (text,) = rehearsal.left_out
    assert text == (
        "Notebook/team/lab with 1 pod: Kubernetes itself does not run this kind, so the devices that it uses "
        "are free here from the beginning"
    )


def test_a_script_that_a_later_run_has_finished_did_not_stop() -> None:
    answer = answer_of(1, 0)

    assert "stopped" not in format_rehearsal(answer, 100)
    assert "Stopped at" not in format_rehearsal_page(answer)


def test_a_script_that_stopped_twice_is_named_once_with_its_last_output() -> None:
    """Its first run had stopped only for a commit."""
    answer = answer_of(1, 2)

    text, page = format_rehearsal(answer, 100), format_rehearsal_page(answer)

    assert 1 == text.count("stopped")
    assert "prepare.sh ended with status 2" in text
    assert 1 == page.count("Stopped at")
    assert "output of run 1" in page
    assert "output of run 0" not in text + page


def answer_of(*statuses: int) -> RehearsalAnswer:
    """An answer with runs of one script that ended so."""
    return RehearsalAnswer(
        waves=0,
        waves_done=0,
        nodes=1,
        pods=0,
        waiting_pods=0,
        seconds=2,
        scripts=tuple(
            ScriptRun(
                script="prepare.sh", seconds=1, status=status, output=f"output of run {number}"
            )
            for number, status in enumerate(statuses)
        ),
        findings=(),
        not_rehearsed=(),
    )
