"""`drawbridge verify --wave` and `--node`: the objects that a plan expects are there, or are named."""

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest
from click.testing import Result

from answers.model.redaction import redact
from kube.manifests.dump import dump_yaml
from kube.manifests.source import SourceObject
from migration.plan.drivers.driver_daemon_sets import find_waiting
from testing.command import ROOT, drawbridge
from testing.documents import api_object, class_of_driver, namespace
from testing.migration import (
    GPU,
    SHARE,
    budget,
    daemon_set,
    hami_node,
    origin,
    plugin_node,
    resource_slice,
    workload,
)

Objects = Sequence[Mapping[str, Any]]
Change = Callable[[list[dict[str, Any]]], None]
SCHEMA: Final = json.loads((ROOT / "docs/reference/schemas/verify.json").read_text())

HAMI: Final = "hami-core-gpu.project-hami.io"
DRIVER_LABEL: Final = "drawbridge.internal/dra-driver"
REGISTRY: Final = [{"name": "r", "hostPath": {"path": "/var/lib/kubelet/plugins_registry"}}]
HAMI_DRIVER: Final = daemon_set(
    "hami-dra-driver", nodeSelector={DRIVER_LABEL: HAMI}, volumes=REGISTRY
)
BEFORE: Final = (
    *(hami_node("hami-0"), hami_node("hami-1"), plugin_node("gpu-0")),
    namespace("team"),
    *workload("web", SHARE, ["hami-0", "hami-0"]),
    HAMI_DRIVER,
)


def write(path: Path, objects: Objects) -> Path:
    path.write_text(dump_yaml(objects))
    return path


def planned(tmp_path: Path, objects: Objects = BEFORE) -> Path:
    """The folder of a plan with a first wave that switches hami-1 and opts team in."""
    snapshot = write(
        tmp_path / "before.yaml", [o for o in objects if o["metadata"]["name"] != "gpu-0"]
    )
    result = drawbridge("plan", "--snapshot", snapshot, "--wave-nodes", 1, "-o", tmp_path / "plan")
    assert result.exit_code in (0, 1), result.stderr
    return tmp_path / "plan"


def verify(tmp_path: Path, objects: Objects, *options: object) -> Result:
    return drawbridge("verify", "--snapshot", write(tmp_path / "now.yaml", objects), *options)


def problems(result: Result) -> dict[str, list[str]]:
    """Object to the messages of checks that are not right."""
    document = json.loads(result.stdout)
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    messages: dict[str, list[str]] = {}
    for check in document["checks"]:
        if check["state"] not in {"ok", "note"}:
            messages.setdefault(check["object"], []).append(check["message"])
    return messages


# --- after a wave ---------------------------------------------------------------------------------


def after() -> list[dict[str, Any]]:
    """The cluster when the first wave is done."""
    switched = hami_node("hami-1")
    switched["status"]["allocatable"] = {GPU: "0"}
    web = workload("web", SHARE, ["hami-1", "hami-1"])
    for pod in web[1:]:
        pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
        pod["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    labels = {"drawbridge.internal/translate": "true"}
    return [
        hami_node("hami-0"),
        switched,
        resource_slice("hami-1", HAMI, ("GPU-hami-1-0", "GPU-hami-1-1")),
        namespace("team", labels),
        *web,
    ]


def test_a_wave_that_is_done_is_right(tmp_path: Path) -> None:
    plan = planned(tmp_path)

    result = verify(tmp_path, after(), "--wave", plan / "wave-1")

    assert 0 == result.exit_code, result.stdout
    assert "all is as expected" in result.stdout
    assert "2 of 2 pods run, with claims" in result.stdout


def find(objects: Sequence[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    return next(o for o in objects if (o["kind"], o["metadata"]["name"]) == (kind, name))


def _plugin_is_left(objects: list[dict[str, Any]]) -> None:
    find(objects, "Node", "hami-1")["status"]["allocatable"] = {GPU: "20"}


def _one_device(objects: list[dict[str, Any]]) -> None:
    find(objects, "ResourceSlice", "slice-hami-1")["spec"]["devices"].pop()


def _incomplete_pool(objects: list[dict[str, Any]]) -> None:
    find(objects, "ResourceSlice", "slice-hami-1")["spec"]["pool"]["resourceSliceCount"] = 2


def _another_gpu(objects: list[dict[str, Any]]) -> None:
    device = find(objects, "ResourceSlice", "slice-hami-1")["spec"]["devices"][0]
    device["attributes"]["uuid"]["string"] = "GPU-new"


def _cordoned(objects: list[dict[str, Any]]) -> None:
    find(objects, "Node", "hami-1")["spec"] = {"unschedulable": True}


def _no_label(objects: list[dict[str, Any]]) -> None:
    find(objects, "Namespace", "team")["metadata"]["labels"] = {}


def _old_pod(objects: list[dict[str, Any]]) -> None:
    del find(objects, "Pod", "web-1")["spec"]["resourceClaims"]


def _pending_pod(objects: list[dict[str, Any]]) -> None:
    find(objects, "Pod", "web-0")["status"] = {"phase": "Pending"}


@pytest.mark.parametrize(
    ("change", "object_", "message"),
    [
        (_plugin_is_left, "Node//hami-1", "its device plugin still offers nvidia.com/gpu 20"),
        (
            _one_device,
            "Node//hami-1",
            "1 of 2 devices of hami-core-gpu.project-hami.io are published",
        ),
        (_incomplete_pool, "Node//hami-1", "0 of 2 devices"),
        (_another_gpu, "Node//hami-1", "no device has the uuid GPU-hami-1-0"),
        (_cordoned, "Node//hami-1", "kubectl uncordon"),
        (_no_label, "Namespace//team", "is missing, not true"),
        (_old_pod, "Deployment/team/web", "1 of 2 pods have no claims"),
        (_pending_pod, "Deployment/team/web", "1 of 2 pods run"),
    ],
)
def test_what_is_missing_after_a_wave_is_named(
    tmp_path: Path, change: Change, object_: str, message: str
) -> None:
    plan = planned(tmp_path)
    objects = after()
    change(objects)

    result = verify(tmp_path, objects, "--wave", plan / "wave-1", "-o", "json")

    assert 1 == result.exit_code
    assert [object_] == list(problems(result))
    assert message in " ".join(problems(result)[object_])


def test_jobs_of_before_a_wave_run_out(tmp_path: Path) -> None:
    job = workload("train", SHARE, ["hami-0"], kind="Job")
    for object_ in job:
        object_["apiVersion"] = "batch/v1" if object_["kind"] == "Job" else "v1"
    job[1]["status"] = {"phase": "Running"}
    plan = planned(tmp_path, [*BEFORE, *job])

    assert 0 == verify(tmp_path, [*after(), *job], "--wave", plan / "wave-1").exit_code
    assert 0 == verify(tmp_path, after(), "--wave", plan / "wave-1").exit_code


# --- before a wave --------------------------------------------------------------------------------


def test_a_node_that_was_cordoned_since_the_plan_is_noted(tmp_path: Path) -> None:
    """The end of its wave uncordons it."""
    plan = planned(tmp_path)
    objects = copy.deepcopy(list(BEFORE))
    find(objects, "Node", "hami-1")["spec"] = {"unschedulable": True}

    result = verify(tmp_path, objects, "--wave", plan / "wave-1", "--before", "-o", "json")

    notes = {
        check["object"]: check["message"]
        for check in json.loads(result.stdout)["checks"]
        if check["state"] == "note"
    }
    text = "it is as planned, but cordoned, and the end of this wave uncordons it"
    assert notes["Node//hami-1"].startswith(text)
    assert "Node//hami-1" not in problems(result)


def test_a_wave_may_begin(tmp_path: Path) -> None:
    plan = planned(tmp_path)

    result = verify(tmp_path, BEFORE, "--wave", plan / "wave-1", "--before")

    assert 0 == result.exit_code, result.stdout
    assert "all pods have devices while its nodes are drained" in result.stdout


def _not_ready(objects: list[dict[str, Any]]) -> None:
    conditions = [{"type": "Ready", "status": "False"}]
    find(objects, "Node", "hami-1")["status"]["conditions"] = conditions


def _old_driver(objects: list[dict[str, Any]]) -> None:
    labels = find(objects, "Node", "hami-1")["metadata"]["labels"]
    labels["nvidia.com/cuda.driver-version.major"] = "570"


def _fewer_devices(objects: list[dict[str, Any]]) -> None:
    find(objects, "Node", "hami-1")["status"]["allocatable"] = {GPU: "10"}


def _switched(objects: list[dict[str, Any]]) -> None:
    """A person has switched the node with the script."""
    node = find(objects, "Node", "hami-1")
    node["metadata"]["labels"] |= {DRIVER_LABEL: HAMI, "gpu": "off"}
    node["status"]["allocatable"] = {}


def _bare_pod(objects: list[dict[str, Any]]) -> None:
    pod = workload("bare", {}, ["hami-1"])[1]
    del pod["metadata"]["ownerReferences"]
    objects.append(pod)


def _strict_budget(objects: list[dict[str, Any]]) -> None:
    objects += [*workload("other", {}, ["hami-1"]), budget(app="other", maxUnavailable=0)]


def _exhausted_budget(objects: list[dict[str, Any]]) -> None:
    entry = budget(app="other", maxUnavailable=1)
    entry["status"] = {"disruptionsAllowed": 0}
    objects += [*workload("other", {}, ["hami-1"]), entry]


def _no_namespace(objects: list[dict[str, Any]]) -> None:
    objects[:] = [o for o in objects if o["kind"] != "Namespace"]


def _no_driver(objects: list[dict[str, Any]]) -> None:
    objects.remove(find(objects, "DaemonSet", "hami-dra-driver"))


def _driver_of_others(objects: list[dict[str, Any]]) -> None:
    spec = find(objects, "DaemonSet", "hami-dra-driver")["spec"]["template"]["spec"]
    spec["nodeSelector"] = {DRIVER_LABEL: "another.example.com"}


def _driver_elsewhere(objects: list[dict[str, Any]]) -> None:
    spec = find(objects, "DaemonSet", "hami-dra-driver")["spec"]["template"]["spec"]
    spec |= {"nodeSelector": {}, "affinity": affinity("NotIn", HAMI)}


def _no_pods(objects: list[dict[str, Any]]) -> None:
    objects.append(origin("pods"))


def _no_room(objects: list[dict[str, Any]]) -> None:
    full = {GPU: "1", "nvidia.com/gpumem": "40960"}
    objects[:] = [entry for entry in objects if not entry["metadata"]["name"].startswith("web")]
    objects += workload("web", full, ["hami-1", "hami-1", "hami-0"])


@pytest.mark.parametrize(
    ("change", "object_", "message"),
    [
        (_not_ready, "Node//hami-1", "it is not ready"),
        (_old_driver, "Node//hami-1", "NVIDIA's driver is 570, below 580"),
        (_fewer_devices, "Node//hami-1", "it offers nvidia.com/gpu 10"),
        (_switched, "Node//hami-1", "it has been switched already: go on with verify.sh"),
        (_bare_pod, "Node//hami-1", "nothing creates team/bare-0 again"),
        (_strict_budget, "Node//hami-1", "never allows the eviction of pod other-0"),
        (_exhausted_budget, "Node//hami-1", "allows no eviction of pod other-0 now"),
        (_no_namespace, "Namespace//team", "there is no such namespace"),
        (
            _no_driver,
            f"Driver//{HAMI}",
            f"{DRIVER_LABEL}={HAMI}: install the driver, see prepare.sh",
        ),
        (_driver_of_others, f"Driver//{HAMI}", "install the driver"),
        (_driver_elsewhere, f"Driver//{HAMI}", "install the driver"),
        (_no_pods, "Cluster//", "pods could not be read"),
        (_no_room, "Wave//1", "Deployment/team/web"),
    ],
)
def test_what_stops_a_wave_is_named(
    tmp_path: Path, change: Change, object_: str, message: str
) -> None:
    plan = planned(tmp_path)
    objects = json.loads(json.dumps(BEFORE))
    change(objects)

    result = verify(tmp_path, objects, "--wave", plan / "wave-1", "--before", "-o", "json")

    assert 1 == result.exit_code
    assert [object_] == list(problems(result))
    assert message in " ".join(problems(result)[object_])


def test_pods_without_devices_that_find_no_place_are_named(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    others = workload("logs", {"cpu": "64"}, ["hami-1"], kind="ReplicaSet")
    objects = copy.deepcopy([*BEFORE, *others])
    for entry in objects:
        if entry["kind"] == "Node":
            entry["status"]["allocatable"] |= {"cpu": "8"}

    result = verify(tmp_path, objects, "--wave", plan / "wave-1", "--before", "-o", "json")

    assert {} == problems(result)
    (check,) = (
        check
        for check in json.loads(result.stdout)["checks"]
        if check["object"] == "Pod/team/logs-0"
    )
    assert "note" == check["state"]
    assert "no other node takes it or has the CPU and memory" in check["message"]


def affinity(operator: str, *values: str) -> dict[str, Any]:
    """An affinity for nodes by the label of drivers."""
    requirement = {"key": DRIVER_LABEL, "operator": operator, "values": list(values)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


@pytest.mark.parametrize(
    "spec", [affinity("In", "another.example.com", HAMI), affinity("Exists")], ids=["In", "Exists"]
)
def test_a_driver_may_choose_its_nodes_by_affinity(tmp_path: Path, spec: dict[str, Any]) -> None:
    plan = planned(tmp_path)
    driver = daemon_set("hami-dra-driver", affinity=spec, volumes=REGISTRY)
    objects = [driver if object_ is HAMI_DRIVER else object_ for object_ in BEFORE]

    result = verify(tmp_path, objects, "--wave", plan / "wave-1", "--before")

    assert 0 == result.exit_code, result.stdout
    assert f"a DaemonSet waits for {DRIVER_LABEL}={HAMI}" in result.stdout


@pytest.mark.parametrize(
    ("name", "volumes", "status", "message"),
    [
        ("exporter", [], 1, "only kube-system/exporter waits for"),
        (
            "device-plugin",
            [{"name": "p", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}],
            1,
            "which is not the driver: install that, see prepare.sh",
        ),
        ("hami-dra-driver", [], 0, "see that it is the driver"),
        ("gpus", [{"name": "r", "hostPath": {"path": "/data/kubelet/"}}], 0, "kube-system/gpus"),
    ],
    ids=["an exporter", "a device plugin", "one that is called so", "the kubelet's directory"],
)
def test_only_a_daemon_set_that_registers_with_the_kubelet_is_a_driver(
    tmp_path: Path, name: str, volumes: list[dict[str, Any]], status: int, message: str
) -> None:
    plan = planned(tmp_path)
    other = daemon_set(name, nodeSelector={DRIVER_LABEL: HAMI}, volumes=volumes)
    objects = [other if object_ is HAMI_DRIVER else object_ for object_ in BEFORE]

    result = verify(tmp_path, objects, "--wave", plan / "wave-1", "--before")

    assert status == result.exit_code, result.stdout
    assert message in " ".join(result.stdout.split())


def test_the_driver_of_a_confirmed_release_is_in_its_namespace() -> None:
    label = "nvidia.com/dra-kubelet-plugin=true"
    driver = daemon_set(
        "driver", nodeSelector={"nvidia.com/dra-kubelet-plugin": "true"}, volumes=REGISTRY
    )
    source = SourceObject(document=driver, source="", line=0)

    assert ("kube-system/driver",) == find_waiting([source], label, "kube-system").drivers
    assert ("kube-system/driver",) == find_waiting([source], label, "nvidia").others


def _published_elsewhere() -> dict[str, Any]:
    return resource_slice("other", HAMI, ("GPU-other",))


@pytest.mark.parametrize(
    ("evidence", "message"),
    [
        (_published_elsewhere(), "it has devices on other nodes, and no DaemonSet has"),
        (origin("daemonsets"), "daemonsets cannot be read"),
    ],
    ids=["it publishes elsewhere", "DaemonSets cannot be read"],
)
def test_a_driver_that_may_be_there_stops_no_wave(
    tmp_path: Path, evidence: dict[str, Any], message: str
) -> None:
    plan = planned(tmp_path)
    objects = [object_ for object_ in BEFORE if object_ is not HAMI_DRIVER]

    result = verify(tmp_path, [*objects, evidence], "--wave", plan / "wave-1", "--before")

    assert 0 == result.exit_code, result.stdout
    assert message in result.stdout


def prepare_plugin(objects: list[dict[str, Any]]) -> None:
    """Keep the device plugin from switched nodes, as `prepare.sh` does."""
    excluded = {"key": "nvidia.com/dra-kubelet-plugin", "operator": "NotIn", "values": ["true"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [excluded]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    spec = find(objects, "DaemonSet", "nvidia-device-plugin")["spec"]["template"]["spec"]
    spec["affinity"] = {"nodeAffinity": required}


def test_a_class_has_to_map_the_name_first(tmp_path: Path) -> None:
    objects = [
        plugin_node("a"),
        plugin_node("b"),
        namespace("team"),
        *workload("web", {GPU: "1"}, ["a"]),
        daemon_set("nvidia-device-plugin"),
        daemon_set(
            "driver", nodeSelector={"nvidia.com/dra-kubelet-plugin": "true"}, volumes=REGISTRY
        ),
    ]
    plan = planned(tmp_path, objects)
    prepare_plugin(objects)
    class_: dict[str, Any] = class_of_driver("gpu.nvidia.com")
    call = ("--wave", plan / "wave-1", "--before")

    assert 1 == verify(tmp_path, objects, *call).exit_code
    assert "it does not map nvidia.com/gpu" in verify(tmp_path, [*objects, class_], *call).stdout
    class_["spec"]["extendedResourceName"] = GPU
    assert 0 == verify(tmp_path, [*objects, class_], *call).exit_code


@pytest.mark.parametrize(("created", "status"), [("11", 1), ("09", 0)])
def test_a_younger_class_may_not_take_the_name(created: str, status: int, tmp_path: Path) -> None:
    """Of two classes that map a name Kubernetes takes the younger: HAMi's chart maps that of whole GPUs, too."""
    objects = [
        plugin_node("a"),
        plugin_node("b"),
        namespace("team"),
        *workload("web", {GPU: "1"}, ["a"]),
        daemon_set("nvidia-device-plugin"),
        daemon_set(
            "driver", nodeSelector={"nvidia.com/dra-kubelet-plugin": "true"}, volumes=REGISTRY
        ),
    ]
    plan = planned(tmp_path, objects)
    prepare_plugin(objects)
    classes = [
        api_object(
            "DeviceClass",
            name,
            creationTimestamp=f"2026-11-24T{hour}:00:00Z",
            spec={
                "selectors": [{"cel": {"expression": f"device.driver == '{name}'"}}],
                "extendedResourceName": GPU,
            },
        )
        for name, hour in (("gpu.nvidia.com", "10"), (HAMI, created))
    ]

    result = verify(tmp_path, [*objects, *classes], "--wave", plan / "wave-1", "--before")

    assert status == result.exit_code, result.stdout
    text = " ".join(result.stdout.split())
    patch = f"kubectl patch deviceclass {HAMI} --type=json"
    assert (patch in text) is (status == 1)
    assert ("ok DeviceClass/gpu.nvidia.com maps" in text) is (status == 0)


def test_what_hamis_chart_maps_is_taken_back_by_the_preparation(tmp_path: Path) -> None:
    plan = planned(tmp_path)

    prepare = (plan / "prepare.sh").read_text()
    assert f"kubectl patch deviceclass {HAMI} --type=json" in prepare
    assert f"kubectl get deviceclass {HAMI} --ignore-not-found" in prepare
    assert f"Install the chart of {HAMI}" in (plan / "README.md").read_text()


# --- nodes and calls ------------------------------------------------------------------------------


def test_a_node_alone(tmp_path: Path) -> None:
    call = ("--node", "hami-1", "--expect-devices")

    assert 0 == verify(tmp_path, after(), *call, 2).exit_code
    assert 1 == verify(tmp_path, after(), *call, 3).exit_code
    assert 1 == verify(tmp_path, BEFORE, *call, 2).exit_code
    assert "there is no such node" in verify(tmp_path, BEFORE, "--node", "gone").stdout


def test_only_devices_of_the_expected_driver_count_for_a_node(tmp_path: Path) -> None:
    nics = [
        *(o for o in after() if o["kind"] != "ResourceSlice"),
        resource_slice("hami-1", "dra.net", ("eth0", "eth1")),
    ]
    both = [*after(), nics[-1] | {"metadata": {"name": "nics"}}]
    call = ("--node", "hami-1", "--expect-devices")

    late = verify(tmp_path, nics, *call, f"{HAMI}=2")
    assert (1, True) == (late.exit_code, f"0 of 2 devices of {HAMI} are published" in late.stdout)
    assert 0 == verify(tmp_path, both, *call, f"{HAMI}=2").exit_code
    assert 0 == verify(tmp_path, both, *call, f"{HAMI}=2", call[-1], "dra.net=2").exit_code
    assert 1 == verify(tmp_path, both, *call, f"{HAMI}=2", call[-1], "dra.net=3").exit_code
    # A number alone counts the devices of all drivers, as it always did.
    assert 0 == verify(tmp_path, nics, *call, 2).exit_code


@pytest.mark.parametrize(
    ("offered", "resources", "status"),
    [
        ({"intel.com/qat": "16"}, [GPU], 0),
        ({"intel.com/qat": "16"}, [GPU, "intel.com/qat"], 1),
        ({"intel.com/qat": "0"}, [GPU, "intel.com/qat"], 0),
        # A script of an earlier version.
        ({"intel.com/qat": "16"}, [], 1),
        # HAMi may give the cards another name, and the device plugin of NVIDIA may come to them.
        ({"example.com/vgpu": "20"}, ["example.com/vgpu"], 1),
        ({GPU: "2"}, ["example.com/vgpu"], 1),
        ({"nvidia.com/mig-1g.5gb": "2"}, [GPU], 1),
    ],
)
def test_a_node_may_offer_devices_that_the_plan_leaves(
    tmp_path: Path, offered: Mapping[str, str], resources: Sequence[str], status: int
) -> None:
    """A HAMi node with cards of QAT stayed drained: its script waited for their device plugin to leave."""
    objects = after()
    (node,) = (o for o in objects if o["kind"] == "Node" and o["metadata"]["name"] == "hami-1")
    node["status"] = node["status"] | {"allocatable": {GPU: "0", **offered}}
    keys = [f"--resource={key}" for key in resources]

    result = verify(tmp_path, objects, "--node", "hami-1", "--expect-devices", f"{HAMI}=2", *keys)

    assert status == result.exit_code, result.stdout


def test_a_wave_by_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert 0 == verify(tmp_path, after(), "--wave", "1").exit_code
    monkeypatch.chdir(plan)
    assert 0 == verify(tmp_path, after(), "--wave", "1").exit_code
    result = verify(tmp_path, after(), "--wave", "9")
    assert (2, True) == (result.exit_code, "no wave 9" in result.stderr)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--before",), "--before requires --wave"),
        (("--expect-devices", "1"), "--expect-devices requires --node"),
        (("--resource", GPU), "--resource requires --node"),
        (("--node", "a", "--before", "--resource", GPU), "--resource requires --node"),
        (("--node", "a", "--expect-devices", "0"), "write DRIVER=N, such as"),
        (("--node", "a", "--expect-devices", "=8"), "write DRIVER=N, such as"),
        (("--node", "a", "--expect-devices", "gpu.nvidia.com"), "write DRIVER=N, such as"),
        (("--wait", "1m"), "--wait requires --wave, --node or --webhook, and a live"),
        (
            ("--node", "a", "--wait", "1m"),
            "--wait requires --wave, --node or --webhook, and a live",
        ),
        (("--node", "a", "--wait", "soon"), "not a duration"),
        (("--node", "a", "--audit-log", "x"), "mutually exclusive"),
        (("--wave", "nowhere"), "is neither a number nor a folder wave-N"),
        (("--wave", "nowhere/wave-1"), "drawbridge plan -o DIR writes one"),
    ],
)
def test_a_wrong_call(tmp_path: Path, options: Sequence[str], message: str) -> None:
    result = verify(tmp_path, BEFORE, *options)

    assert 2 == result.exit_code
    assert message in result.stderr


def test_a_plan_that_is_none_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "wave-1").mkdir()
    (tmp_path / "plan.yaml").write_text("apiVersion: v1\nkind: Plan\nwaves: 3\n")

    result = verify(tmp_path, BEFORE, "--wave", tmp_path / "wave-1")

    assert (2, True) == (result.exit_code, "is not a plan" in result.stderr)


def test_a_snapshot_keeps_by_what_a_driver_is_known() -> None:
    paths = ("/var/lib/kubelet/plugins_registry", "/var/lib/kubelet/", "/etc/secret", "/kubelet/x")
    volumes = [{"name": f"v{n}", "hostPath": {"path": path}} for n, path in enumerate(paths)]
    template = {"metadata": {}, "spec": {"volumes": volumes, "containers": []}}
    document = api_object("DaemonSet", "d", spec={"template": template})

    kept = redact(document)["spec"]["template"]["spec"]["volumes"]

    assert [volume.get("hostPath", {}).get("path") for volume in kept] == [*paths[:2], None, None]
