"""`drawbridge rehearse`, up to the control plane: the objects taken over of a cluster, and its output."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from click.testing import Result

from allocator.nodes.node_resources import NodeResources
from allocator.nodes.pod_requests import pod_request
from cli.output.formats import Report, format_document
from cli.verbs.plan.command import plan
from cli.verbs.rehearse import command as rehearse
from cli.verbs.rehearse.page import format_rehearsal_page
from cli.verbs.rehearse.text import format_rehearsal
from kube.api.core import Pod
from kube.api.meta import convert
from kube.manifests.dump import dump_yaml
from kube.manifests.source import SourceObject
from migration.conversion.replaced_lines import ReplacedLines
from migration.plan.model.plan import Plan, PlannedNode, PlannedWorkload, Wave
from migration.rehearsal.build import build_rehearsal
from migration.rehearsal.documents import bare_pod, node, pod_template, workload
from migration.rehearsal.model import RehearsalInput, RehearsedWave, ScriptRun
from process.profiles.profile_files import load_profiles
from testing.command import EXAMPLES, ROOT, drawbridge
from testing.documents import api_object, namespace
from testing.documents import node as node_objects
from testing.migration import SHARE, daemon_set, hami_node, plugin_node
from testing.migration import workload as workload_objects
from testing.rehearsals import FAILED
from translation.cluster.snapshot import TranslationOptions

FLEET = EXAMPLES / "migration" / "fleet.yaml"


def test_a_rehearsal_takes_the_flags_of_the_plan_that_it_rehearses() -> None:
    """The plan's own note asks for --plugin-label, a flag that the rehearsal did not know."""
    left_out = {"live", "kubeconfig", "context", "folder", "form", "page", "color"}
    of_plan = {str(option.name) for option in plan.params} - left_out

    assert of_plan <= {str(option.name) for option in rehearse.rehearse.params}


def test_a_pod_keeps_what_decides_about_devices_and_places_and_nothing_else() -> None:
    template = {
        "metadata": {"labels": {"app": "web"}, "annotations": {"note": "x"}, "name": "web"},
        "spec": {
            "nodeSelector": {"gpu": "on"},
            "serviceAccountName": "admin",
            "priorityClassName": "unknown",
            "volumes": [
                {"name": "s", "secret": {"secretName": "key"}},
                {"name": "e", "emptyDir": {}},
            ],
            "containers": [
                {"name": "c", "env": [{"name": "KEY", "value": "secret"}], "resources": {}}
            ],
        },
    }

    created = pod_template(template, frozenset(), "Deployment")

    assert {"labels": {"app": "web"}, "annotations": {"note": "x"}} == created["metadata"]
    assert "secret" not in msgspec.json.encode(created).decode()
    assert {
        "nodeSelector": {"gpu": "on"},
        "volumes": [{"name": "e", "emptyDir": {}}],
        "containers": [{"name": "c", "image": "registry.internal/app:1"}],
        "terminationGracePeriodSeconds": 0,
    } == created["spec"]


def test_a_workload_selects_its_pods_by_a_label_of_the_rehearsal() -> None:
    spec = {"replicas": 2, "template": {"metadata": {"labels": {"app": "web"}}, "spec": {}}}
    document = {"kind": "Deployment", "metadata": {"name": "web", "uid": "u"}, "spec": spec}

    created = workload(document, frozenset())

    labels = created["spec"]["template"]["metadata"]["labels"]
    assert labels.items() >= created["spec"]["selector"]["matchLabels"].items()
    assert ({"name": "web"}, 2) == (created["metadata"], created["spec"]["replicas"])


def test_the_work_of_a_job_goes_on_until_its_node_is_cordoned() -> None:
    spec = {"backoffLimit": 0, "template": {"spec": {}}}
    document = {"kind": "Job", "metadata": {"name": "train"}, "spec": spec}

    created = workload(document, frozenset())["spec"]

    assert (0, "Never") == (created["backoffLimit"], created["template"]["spec"]["restartPolicy"])
    assert {"ends": "cordoned"} == created["template"]["metadata"]["labels"]


@pytest.mark.parametrize(
    ("policy", "labels"),
    [
        ("OnFailure", {"app": "x", "ends": "cordoned"}),
        ("Never", {"app": "x", "ends": "cordoned"}),
        ("Always", {"app": "x"}),
    ],
)
def test_a_pod_without_a_controller_ends_likewise(policy: str, labels: dict[str, str]) -> None:
    """A rehearsal waited ten minutes for one, and then gave up."""
    document = {
        "kind": "Pod",
        "metadata": {"name": "once", "labels": {"app": "x"}},
        "spec": {"restartPolicy": policy, "containers": [{"name": "c"}]},
    }

    created = bare_pod(document, frozenset())

    assert labels == created["metadata"]["labels"]
    assert policy == created["spec"]["restartPolicy"]


def test_a_node_is_played_by_kwok_and_offers_the_same_devices() -> None:
    taints = [{"key": "node.kubernetes.io/not-ready"}, {"key": "gpu", "effect": "NoSchedule"}]
    document = {
        "metadata": {"name": "n", "resourceVersion": "1"},
        "spec": {"taints": taints, "podCIDR": "10.0.0.0/24"},
        "status": {"allocatable": {"nvidia.com/gpu": "8"}, "addresses": []},
    }

    others = NodeResources().with_pod(pod_request(pod_of(cpu="1500m", memory="1Gi")))
    created = node(document, others)

    assert {"kwok.x-k8s.io/node": "fake"} == created["metadata"]["annotations"]
    assert {"taints": [taints[1]]} == created["spec"]
    room = created["status"]["allocatable"]
    assert ("8", "499") == (room["nvidia.com/gpu"], room["pods"])
    # What the pods request that are not rehearsed is not there for those that are.
    assert ("126500m", str(1023 * 2**30)) == (room["cpu"], room["memory"])


def pod_of(**requests: str) -> Pod:
    container = {"name": "c", "resources": {"requests": requests}}
    return convert({"metadata": {"name": "p"}, "spec": {"containers": [container]}}, Pod)


def rehearsed(
    objects: Sequence[dict[str, Any]],
    waves: tuple[Wave, ...] = (),
    replaced_lines: tuple[ReplacedLines, ...] = (),
) -> RehearsalInput:
    """The rehearsal of a plan with these waves and lines."""
    sources = tuple(
        SourceObject(document=document, source="a test", line=0) for document in objects
    )
    plan_of_none = Plan(
        kubernetes_version="",
        wave_nodes=1,
        keep_free=0,
        gpu_operator="",
        drivers={},
        mapped_classes={},
        plugins=(),
        waves=waves,
        held=(),
        quotas={},
        replaced_lines=replaced_lines,
    )
    return build_rehearsal(plan_of_none, sources, load_profiles(), TranslationOptions(), "default")


def test_pods_have_the_scheduler_that_a_webhook_gave_them() -> None:
    """HAMi's webhook names its scheduler in pods, never in templates, and does not run in a rehearsal."""
    objects = [
        hami_node("h"),
        namespace("team"),
        *workload_objects("web", SHARE, ["h", "h"]),
    ]
    for document in objects:
        if document["kind"] == "Pod":
            document["spec"] = {**document["spec"], "schedulerName": "hami-scheduler"}
    rehearsal = rehearsed(objects)

    (created,) = rehearsal.workloads
    assert "hami-scheduler" == created["spec"]["template"]["spec"]["schedulerName"]


def test_a_rehearsal_loads_nothing_that_could_act_or_hold_a_secret() -> None:
    """A snapshot may have more than a plan reads, such as the webhooks and controllers of others."""
    acting = [
        api_object("Secret", "key", "team", data={"token": "c2VjcmV0"}),
        api_object("ConfigMap", "settings", "team", data={"token": "secret"}),
        api_object("ServiceAccount", "admin", "team"),
        api_object("ClusterRoleBinding", "admin", api_version="rbac.authorization.k8s.io/v1"),
        api_object("CustomResourceDefinition", "a.b", api_version="apiextensions.k8s.io/v1"),
        *(
            api_object(kind, "hook", api_version="admissionregistration.k8s.io/v1", webhooks=[])
            for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
        ),
        *(
            api_object(kind, "policy", api_version="admissionregistration.k8s.io/v1")
            for kind in ("ValidatingAdmissionPolicy", "MutatingAdmissionPolicy")
        ),
    ]
    plain = [
        hami_node("h"),
        namespace("team"),
        *workload_objects("web", SHARE, ["h"]),
    ]
    foreign = [
        *workload_objects("controller", {"cpu": "1"}, ["h"]),
        *workload_objects("agent", {"cpu": "1"}, ["h"], kind="DaemonSet"),
    ]

    rehearsal, without = rehearsed([*plain, *foreign, *acting]), rehearsed(plain)

    assert without.objects == rehearsal.objects
    assert without.workloads == rehearsal.workloads
    assert ["web"] == [created["metadata"]["name"] for created in rehearsal.workloads]
    assert "secret" not in msgspec.json.encode(rehearsal).decode().lower()


def test_device_quotas_that_the_scripts_wait_for_are_there() -> None:
    """switch.sh waited for one that the rehearsal did not have, and failed."""
    quotas = [
        api_object("DeviceQuota", name, uid="u", spec={"namespaceSelector": {}, "limits": []})
        for name in ("team", "other")
    ]
    lines = ReplacedLines(
        namespace="team", name="gpus", lines=("requests.nvidia.com/gpu",), device_quotas=("team",)
    )

    rehearsal = rehearsed([hami_node("h"), namespace("team"), *quotas], replaced_lines=(lines,))

    assert [{"name": "team"}] == [quota["metadata"] for quota in rehearsal.device_quotas]


def test_without_a_checkout_it_says_where_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearse, "_PROGRAM", Path("nowhere", "rehearse.py"))

    result = drawbridge("rehearse", "--snapshot", FLEET)

    assert 2 == result.exit_code
    assert "" == result.stdout
    assert "Run it from a checkout" in result.stderr
    assert "--binaries DIR" in result.stderr


@pytest.mark.parametrize("flags", [[], ["--snapshot", FLEET]])
def test_a_call_that_cannot_be_rehearsed_is_wrong(flags: list[object]) -> None:
    """Without a snapshot, and with a plan of scripts that would stop for a person."""
    result = drawbridge("rehearse", *flags)

    assert (2, "") == (result.exit_code, result.stdout)
    assert ("--gpu-operator" if flags else "--snapshot") in result.stderr


def release_call(tmp_path: Path, *flags: object) -> Result:
    """A rehearsal of a cluster with a confirmed Helm release of the driver."""
    driver = daemon_set("kubelet-plugin", nodeSelector={"nvidia.com/dra-kubelet-plugin": "true"})
    labels = {
        "helm.sh/chart": "nvidia-dra-driver-gpu-25.3.0",
        "app.kubernetes.io/instance": "gpus",
    }
    driver["metadata"] |= {"namespace": "dra", "labels": labels}
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml([plugin_node("gpu-0"), daemon_set("nvidia-device-plugin"), driver]))
    return drawbridge(
        *("rehearse", "--snapshot", file, "--keep", tmp_path / "keep"),
        *("--driver-release", "dra/gpus", *flags),
    )


def test_the_values_of_a_release_are_where_its_script_expects_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a plan could not be rehearsed: prepare.sh stopped for values that nobody could give."""
    monkeypatch.setattr(rehearse, "_run", lambda *_: FAILED)
    values = tmp_path / "values.yaml"
    values.write_text("image:\n  tag: v1\n")

    result = release_call(tmp_path, "--driver-values", values)

    assert 1 == result.exit_code, result.stderr
    copied = tmp_path / "keep" / "plan" / "driver-values.yaml"
    assert (values.read_text(), 0o600) == (copied.read_text(), copied.stat().st_mode & 0o777)
    assert copied.name in (copied.parent / "prepare.sh").read_text()


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "name them with --driver-values FILE"),
        (b"a: [", "is not YAML"),
        (b"- a\n", "is list and not an object of values"),
        (b"\xff\xfe\xff", "is not YAML"),
        (b"[" * 100_000, "is not YAML"),
        (b" " * (1024 * 1024 + 1), "is larger than 1 MiB"),
    ],
    ids=["no file", "no YAML", "a list", "no text", "too deep", "too large"],
)
def test_values_that_helm_would_not_take_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, text: str
) -> None:
    monkeypatch.setattr(rehearse, "_run", lambda *_: FAILED)
    values = tmp_path / "values.yaml"
    values.write_bytes(content or b"")

    result = release_call(tmp_path, *(() if content is None else ("--driver-values", values)))

    assert 2 == result.exit_code
    assert text in result.stderr


def test_values_without_a_release_are_of_no_use(tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text("a: 1\n")

    result = drawbridge("rehearse", "--snapshot", FLEET, "--driver-values", values)

    assert 2 == result.exit_code
    assert "see --driver-release" in result.stderr


@pytest.mark.parametrize("is_left", [False, True], ids=["deleted", "--keep"])
def test_only_a_folder_that_is_left_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    is_left: bool,
) -> None:
    """It said to read a file of a folder that was deleted at its end."""
    monkeypatch.setattr(rehearse, "_run", lambda *_: FAILED)
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml([plugin_node("gpu-0"), daemon_set("nvidia-device-plugin")]))
    keep = ("--keep", tmp_path / "keep") if is_left else ()

    result = drawbridge(
        *("rehearse", "--snapshot", file, "--gpu-operator", "none", "--driver-release", "none"),
        *keep,
    )

    assert 1 == result.exit_code, result.stderr
    assert is_left is ("README.md first" in capfd.readouterr().err + result.stderr)


def test_the_output_of_a_script_is_not_wrapped() -> None:
    line = f"error: {'a long word ' * 20}end"
    run = ScriptRun(script="prepare.sh", seconds=1, status=1, output=line)

    text = format_rehearsal(msgspec.structs.replace(FAILED, scripts=(run,)), 80)

    assert f"  output    {line}" in text.splitlines()


def test_the_text_names_where_it_stopped_and_what_it_broke() -> None:
    text = format_rehearsal(FAILED, 100)

    assert "wave-2/switch.sh ended with status 1" in text
    assert "after 12 s a/train: killed on n" in text
    assert "helm upgrade nvidia: a chart of others" in text
    assert "by hand   before wave 2: Pod a/debug is deleted" in text
    assert "1 of 2 waves done in 61 s on 5 simulated nodes, 6 pods; 1 broken rule" in text


def test_the_page_escapes_what_scripts_said() -> None:
    text = format_rehearsal_page(FAILED)

    assert "stopped at: x &lt;b&gt;" in text
    for verdict in ("1 of 2 waves done", "wave-2/switch.sh stopped", "1 rule broken"):
        assert f">{verdict}<" in text


def test_an_answer_has_its_schema() -> None:
    text = format_document("json", msgspec.json.encode(FAILED), Report.REHEARSE)
    schema = json.loads((ROOT / "docs" / "reference" / "schemas" / "rehearse.json").read_text())

    jsonschema.Draft202012Validator(schema).validate(json.loads(text))


def test_a_good_rehearsal_says_so() -> None:
    good = msgspec.structs.replace(FAILED, waves_done=2, findings=(), scripts=FAILED.scripts[:1])

    assert good.is_good
    assert "no rule broken" in format_rehearsal(good, 100)
    assert "every wave was done" in format_rehearsal_page(good)


def test_a_wave_names_its_nodes_and_the_pods_that_a_person_creates_again() -> None:
    (_, pod) = workload_objects("once", SHARE, ["h"])
    del pod["metadata"]["ownerReferences"]
    entries = [
        PlannedWorkload(object=reference, pods=1, outcome=outcome, ends=ends)
        for reference, outcome, ends in (
            ("Pod/team/once-0", "translated", False),
            ("Pod/team/ends", "translated", True),
            ("Pod/team/whole", "native", False),
            ("Deployment/team/web", "translated", False),
        )
    ]
    planned_node = PlannedNode(
        name="h",
        source="hami",
        devices={},
        resources={},
        uuids=(),
        labels={"dra": "true"},
        former_labels={"dra": None},
    )
    wave = Wave(
        wave=1,
        nodes=(planned_node,),
        namespaces=("team",),
        workloads=tuple(entries),
        moved_pods=1,
        free_before=0,
        free_after=0,
        split=False,
        notes=(),
    )

    rehearsal = rehearsed([hami_node("h"), namespace("team"), pod], (wave,))

    assert (RehearsedWave(wave=1, nodes=("h",), by_hand=("team/once-0",)),) == rehearsal.waves


def test_only_pods_that_stay_take_cpu_from_their_node() -> None:
    """One that a drain evicts would take it along, and the plan counts on that."""
    node_of_hami = hami_node("h")
    node_of_hami["status"]["allocatable"] |= {"cpu": "8", "memory": "8Gi", "pods": "110"}
    objects = [
        node_of_hami,
        *workload_objects("web", SHARE, ["h"]),
        *workload_objects("agent", {"cpu": "1"}, ["h"], kind="DaemonSet"),
        *workload_objects("api", {"cpu": "2"}, ["h"], kind="ReplicaSet"),
    ]

    rehearsal = rehearsed(objects)

    (simulated,) = rehearsal.nodes
    assert "7000m" == simulated.document["status"]["allocatable"]["cpu"]
    assert ("pods without devices that a drain evicts, with their CPU and memory",) == (
        rehearsal.left_out
    )


def test_pods_of_devices_that_no_plan_knows_have_their_nodes() -> None:
    """They waited from the first to the last wave, and it looked as if a wave had left them so."""
    shared = node_objects("ts-0", {"nvidia.com/gpu.shared": "8"}, {}, {})
    objects = [shared, *workload_objects("nb", {"nvidia.com/gpu.shared": "1"}, ["ts-0"])]

    rehearsal = rehearsed(objects)

    (simulated,) = rehearsal.nodes
    assert "8" == simulated.document["status"]["allocatable"]["nvidia.com/gpu.shared"]


def on_local_disks(
    nodes: Sequence[str], *, templates: bool, kind: str = "StatefulSet"
) -> list[dict[str, Any]]:
    """A workload with a pod on each of these nodes, and a local volume of that for each."""
    owner, *pods = workload_objects("index", SHARE, nodes, kind=kind)
    objects = [owner, *pods]
    if templates:
        owner["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": {}}]
    else:
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data-index-0"}}]
        owner["spec"]["template"]["spec"] |= {"volumes": [*volumes, {"name": "secret"}]}
    for number, pod in enumerate(pods):
        claim = f"data-index-{number}"
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
        pod["spec"] = {**pod["spec"], "volumes": [volume]}
        spec = {"volumeName": f"disk-{number}"}
        objects.append(api_object("PersistentVolumeClaim", claim, "team", spec=spec))
        local = {"local": {"path": "/disk"}}
        objects.append(api_object("PersistentVolume", f"disk-{number}", spec=local))
    return objects


@pytest.mark.parametrize("templates", [False, True])
def test_a_pod_with_a_volume_of_its_node_comes_back_there(templates: bool) -> None:
    """Volumes were left out, so it came back on any node."""
    first = hami_node("h-0")
    first["metadata"]["labels"]["kubernetes.io/hostname"] = "host-0"

    rehearsal = rehearsed([first, hami_node("h-1"), *on_local_disks(["h-0"], templates=templates)])

    volume, claim = rehearsal.objects[-2:]
    assert ("PersistentVolume", "PersistentVolumeClaim") == (volume["kind"], claim["kind"])
    (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["host-0"]}
    assert [expression] == term["matchExpressions"]
    assert ("team", "data-index-0") == (claim["metadata"]["namespace"], claim["metadata"]["name"])
    # Without the UID of the claim it would be lost.
    assert "claimRef" not in volume["spec"]
    assert volume["metadata"]["name"] == claim["spec"]["volumeName"] == "disk-0"
    (created,) = rehearsal.workloads
    own = created["spec"].get("volumeClaimTemplates", [])
    names = [entry["name"] for entry in created["spec"]["template"]["spec"].get("volumes", ())]
    assert (["data"] if templates else [], [] if templates else ["data"]) == (
        [entry["metadata"]["name"] for entry in own],
        names,
    )
    assert not any("PersistentVolumes" in text for text in rehearsal.left_out)


def test_volumes_of_several_nodes_are_told_as_not_rehearsed() -> None:
    disks = on_local_disks(["h-0", "h-1"], templates=False, kind="Deployment")

    rehearsal = rehearsed([hami_node("h-0"), hami_node("h-1"), *disks])

    (text,) = (text for text in rehearsal.left_out if "PersistentVolumes" in text)
    assert text.startswith(
        "Deployment/team/index: its PersistentVolumes, of which some are not of all its 2 nodes"
    )
    assert text.endswith("a pod that is evicted may come back on another node")
    assert not any("PersistentVolume" in entry["kind"] for entry in rehearsal.objects)


@pytest.mark.parametrize(
    ("zones", "is_created"), [(["a", "b"], True), (["a", "c"], False)], ids=["within", "beyond"]
)
def test_pods_with_volumes_of_zones_come_back_in_these(zones: list[str], is_created: bool) -> None:
    key = "topology.kubernetes.io/zone"
    nodes = [hami_node("h-0"), hami_node("h-1"), hami_node("h-2")]
    for own, zone in zip(nodes, [*zones, "d"], strict=True):
        own["metadata"]["labels"][key] = zone
    disks = on_local_disks(["h-0", "h-1"], templates=True)
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": ["a", "b"]}]}]
    selector = {"nodeSelectorTerms": terms}
    for document in disks:
        if document["kind"] == "PersistentVolume":
            document["spec"] = {"csi": {}, "nodeAffinity": {"required": selector}}

    rehearsal = rehearsed([*nodes, *disks])

    created = [entry for entry in rehearsal.objects if entry["kind"] == "PersistentVolume"]
    assert ([selector, selector] if is_created else []) == [
        entry["spec"]["nodeAffinity"]["required"] for entry in created
    ]
    assert is_created is not any("its PersistentVolumes" in text for text in rehearsal.left_out)


def test_a_pod_without_a_controller_keeps_the_volume_of_its_node() -> None:
    *_, pod, claim, volume = on_local_disks(["h"], templates=False)
    del pod["metadata"]["ownerReferences"]

    rehearsal = rehearsed([hami_node("h"), pod, claim, volume])

    (created,) = rehearsal.workloads
    assert ["data-index-0"] == [
        entry["persistentVolumeClaim"]["claimName"] for entry in created["spec"]["volumes"]
    ]


# --- Jobs -----------------------------------------------------------------------------------------


def running_job(name: str = "train", **spec: Any) -> list[dict[str, Any]]:
    """A Job as the API server has it, and a pod of it on h."""
    job, pod = workload_objects(name, SHARE, ["h"], kind="Job", restartPolicy="Never")
    job["apiVersion"] = pod["metadata"]["ownerReferences"][0]["apiVersion"] = "batch/v1"
    del job["spec"]["replicas"]
    generated = {
        "batch.kubernetes.io/controller-uid": "u-1",
        "batch.kubernetes.io/job-name": name,
        "controller-uid": "u-1",
        "job-name": name,
    }
    job["spec"]["template"]["metadata"]["labels"] |= generated
    job["spec"] |= {"selector": {"matchLabels": {"controller-uid": "u-1"}}, **spec}
    return [job, pod]


def test_a_job_is_created_without_the_labels_of_another() -> None:
    """The API server rejected them, since they have the UID of the original, and the rehearsal ended."""
    (created,) = rehearsed([hami_node("h"), *running_job()]).workloads

    labels = created["spec"]["template"]["metadata"]["labels"]
    assert {"app": "train", "ends": "cordoned"} == labels
    assert "selector" not in created["spec"]


def test_a_job_keeps_what_its_failure_policy_requires() -> None:
    """A rule with FailIndex is valid only with backoffLimitPerIndex, and that only with completions by index."""
    fields: dict[str, Any] = {
        "completionMode": "Indexed",
        "completions": 4,
        "parallelism": 2,
        "backoffLimit": 9,
        "backoffLimitPerIndex": 0,
        "maxFailedIndexes": 1,
        "podFailurePolicy": {
            "rules": [
                {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [3]}},
            ]
        },
    }

    (created,) = rehearsed([hami_node("h"), *running_job(**fields)]).workloads

    assert fields == {key: created["spec"][key] for key in fields}


def cron_job(template: dict[str, Any]) -> dict[str, Any]:
    job = {"spec": {"template": template}}
    spec = {"schedule": "0 3 * * *", "jobTemplate": job}
    return api_object("CronJob", "nightly", "team", spec=spec)


@pytest.mark.parametrize("with_job", [True, False], ids=["a Job", "a Job that is not known"])
def test_the_runs_of_a_cron_job_run(with_job: bool) -> None:
    """It was created suspended, and the pods that it had were neither there nor named."""
    job, pod = running_job("nightly-1")
    job["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "controller": True}
    ]
    template = {"spec": job["spec"]["template"]["spec"]}
    owned = [job, pod] if with_job else [pod]
    if not with_job:
        pod["metadata"]["ownerReferences"] = job["metadata"]["ownerReferences"]

    rehearsal = rehearsed([hami_node("h"), cron_job(template), *owned])

    kinds = [entry["kind"] for entry in rehearsal.workloads]
    assert (["CronJob", "Job"] if with_job else ["CronJob"]) == kinds
    assert rehearsal.workloads[0]["spec"]["suspend"] is True
    if with_job:
        assert ("h",) == rehearsal.places["Job/team/nightly-1"]
        assert "ownerReferences" not in rehearsal.workloads[1]["metadata"]
        assert () == rehearsal.left_out
    else:
        assert ("CronJob/team/nightly: 1 pod, of no Job that is known",) == rehearsal.left_out


# --- what an admission of the cluster adds or requires ----------------------------------------------


def test_namespaces_are_created_without_pod_security_standards() -> None:
    """Pods have no securityContext here, so one with `restricted` admitted none, and the plan was blamed."""
    standards = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    objects = [namespace("team", {**standards, "tier": "a"}), namespace("other", standards)]

    created = {
        entry["metadata"]["name"]: entry["metadata"].get("labels")
        for entry in rehearsed(objects).objects
        if entry["kind"] == "Namespace"
    }

    assert {"team": {"tier": "a"}, "other": None}.items() <= created.items()


ADDED = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
OWN = {"key": "team", "operator": "Exists"}
NOT_READY = {
    "key": "node.kubernetes.io/not-ready",
    "operator": "Exists",
    "effect": "NoExecute",
    "tolerationSeconds": 300,
}


@pytest.mark.parametrize(
    ("of_pods", "want"),
    [
        ([[OWN, ADDED, NOT_READY], [OWN, NOT_READY, ADDED]], [OWN, ADDED]),
        ([[OWN, ADDED], [OWN]], [OWN]),
        ([[OWN], [OWN]], [OWN]),
        ([[ADDED], [ADDED]], [OWN, ADDED]),
    ],
    ids=["of all pods", "of one pod", "of the template", "a template that came later"],
)
def test_pods_have_the_tolerations_of_their_admission(
    of_pods: list[list[dict[str, Any]]], want: list[dict[str, Any]]
) -> None:
    """Nodes with the taint of their devices took none of them after a drain, and the plan was blamed."""
    owner, *pods = workload_objects("web", SHARE, ["h", "h"])
    template = owner["spec"]["template"]
    template["spec"] = {**template["spec"], "tolerations": [OWN]}
    for pod, tolerations in zip(pods, of_pods, strict=True):
        pod["spec"] = {**pod["spec"], "tolerations": tolerations}

    (created,) = rehearsed([hami_node("h"), owner, *pods]).workloads

    assert want == created["spec"]["template"]["spec"]["tolerations"]
