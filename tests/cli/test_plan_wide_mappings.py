"""DeviceClasses that give other devices than the keys of pods mean: a migration takes the names from them first."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from kube.manifests.dump import dump_yaml
from testing.command import drawbridge
from testing.documents import api_object, device_class, namespace, node, resource_quota
from testing.migration import GPU, daemon_set, origin, plugin_node, workload
from testing.plan import planned, prepare, run_script

SMALL: Final = "nvidia.com/mig-1g.10gb"
LARGE: Final = "nvidia.com/mig-3g.40gb"
CLASS: Final = "mig.nvidia.com"
OF_ALL_SIZES: Final = (
    "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'mig'"
)
OF_ONE_SIZE: Final = f"{OF_ALL_SIZES} && device.attributes['gpu.nvidia.com'].profile == '3g.40gb'"
UNMAP: Final = f"kubectl patch deviceclass {CLASS} --type=json"
LABEL: Final = "nvidia.com/dra-kubelet-plugin"
Objects = list[dict[str, Any]]


def mapping(
    name: str = CLASS, resource: str = LARGE, selects: str = OF_ALL_SIZES, **metadata: Any
) -> dict[str, Any]:
    class_ = device_class(selects, name=name, extendedResourceName=resource)
    class_["metadata"] |= metadata
    return class_


def cluster(*more: dict[str, Any], large: str = LARGE) -> Objects:
    """Nodes of two sizes of MIG devices, and pods of each; the device plugin stays away from switched nodes."""
    labels = {
        "nvidia.com/gpu.product": "NVIDIA-H100",
        "nvidia.com/gpu.memory": "81559",
        "nvidia.com/cuda.driver.major": "580",
    }
    amounts = {"s0": SMALL, "s1": SMALL, "s2": SMALL, "l0": LARGE, "l1": LARGE, "l2": LARGE}
    excluded = {"key": LABEL, "operator": "NotIn", "values": ["true"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [excluded]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    registry = [{"name": "r", "hostPath": {"path": "/var/lib/kubelet/plugins_registry"}}]
    return [
        *(node(name, {key: "2"}, labels, {}) for name, key in amounts.items()),
        *(namespace("aa"), namespace("zz")),
        daemon_set("nvidia-device-plugin", affinity={"nodeAffinity": required}),
        daemon_set("driver", nodeSelector={LABEL: "true"}, volumes=registry),
        *workload("small", {SMALL: "1"}, ["s0"], namespace="aa"),
        *workload("large", {large: "1"}, ["l0"], namespace="zz"),
        *more,
    ]


def notes(plan: dict[str, Any], wave: int) -> list[str]:
    return [note for note in plan["waves"][wave - 1]["notes"] if "mappingTooWide" in note]


def before(tmp_path: Path, objects: Sequence[dict[str, Any]], *options: object) -> dict[str, str]:
    """The DeviceClasses that stop the first wave, to the messages."""
    file = tmp_path / "now.yaml"
    file.write_text(dump_yaml(objects))
    call = ("--wave", tmp_path / "plan" / "wave-1", "--before", "-o", "json", *options)
    result = drawbridge("verify", "--snapshot", file, *call)
    assert result.exit_code in (0, 1), result.stderr
    checks = json.loads(result.stdout)["checks"]
    failed = {
        check["object"]: check["message"]
        for check in checks
        if check["state"] == "failed" and check["object"].startswith("DeviceClass/")
    }
    assert bool(failed) is (result.exit_code == 1), result.stdout
    return failed


def settings(tmp_path: Path, native: str) -> tuple[str, Path]:
    file = tmp_path / "settings.yaml"
    file.write_text(f"translation: {{native: {native}}}\n")
    return "--settings", file


# --- the plan -------------------------------------------------------------------------------------


def test_a_plan_takes_the_name_from_a_class_of_all_sizes_first(tmp_path: Path) -> None:
    """Between two waves a pod of the large size could get a small device of a switched node."""
    plan = planned(tmp_path, cluster(mapping()), "--wave-nodes", 2)

    (entry,) = plan["wideMappings"]
    assert (CLASS, LARGE) == (entry["deviceClass"], entry["resource"])
    assert entry["reason"].startswith("selects more")
    (note,) = notes(plan, 1)
    assert note.startswith(f"DeviceClass {CLASS} maps {LARGE}, and selects more")
    assert "prepare.sh takes the name from it" in note
    assert [] == notes(plan, 2)
    assert UNMAP in prepare(tmp_path)
    assert f"{CLASS} maps {LARGE} no more" in (tmp_path / "plan" / "README.md").read_text()


@pytest.mark.parametrize(
    "class_",
    [
        mapping("large", selects=OF_ONE_SIZE),
        mapping(resource="nvidia.com/mig-7g.80gb"),
        mapping(resource="acme.example/gpu"),
        device_class(OF_ALL_SIZES, name=CLASS),
    ],
    ids=["of that size", "of no pod", "of an unknown key", "maps nothing"],
)
def test_other_classes_keep_their_names(tmp_path: Path, class_: dict[str, Any]) -> None:
    plan = planned(tmp_path, cluster(class_), "--wave-nodes", 2)

    assert [] == plan["wideMappings"]
    assert [] == notes(plan, 1)
    assert "patch deviceclass" not in prepare(tmp_path)
    assert {} == before(tmp_path, cluster(class_))


def test_where_pods_are_left_to_their_class_it_keeps_the_name(tmp_path: Path) -> None:
    options = settings(tmp_path, "mapped")

    plan = planned(tmp_path, cluster(mapping()), *options)

    assert [] == plan["wideMappings"]
    assert [] == notes(plan, 1)
    assert "mappingTooWide" not in str(before(tmp_path, cluster(mapping()), *options))


def test_where_the_gate_is_off_the_class_maps_nothing(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("validation: {featureGates: {DRAExtendedResource: false}}\n")

    plan = planned(tmp_path, cluster(mapping()), "--settings", file)

    assert [] == plan["wideMappings"]


def test_pods_of_whole_gpus_stay_native_where_that_class_alone_shows_the_gate(
    tmp_path: Path,
) -> None:
    """With Kubernetes 1.35 the gate of mapped names is off by default, and no class may map one without it."""
    whole = [
        *(plugin_node("g0"), plugin_node("g1"), namespace("bb")),
        *workload("whole", {GPU: "1"}, ["g0"], namespace="bb"),
    ]

    plan = planned(tmp_path, cluster(mapping(), *whole, origin(version="v1.35.0")))

    assert [CLASS] == [entry["deviceClass"] for entry in plan["wideMappings"]]
    assert {GPU: "gpu.nvidia.com"} == plan["mappedClasses"]


def test_the_next_class_with_the_name_loses_it_too(tmp_path: Path) -> None:
    """Of two classes Kubernetes takes the younger, and then the other one."""
    older = mapping("older", creationTimestamp="2026-01-01T00:00:00Z")
    younger = mapping("younger", creationTimestamp="2026-02-01T00:00:00Z")

    plan = planned(tmp_path, cluster(older, younger))

    assert ["younger", "older"] == [entry["deviceClass"] for entry in plan["wideMappings"]]
    assert 2 == len(notes(plan, 1))


def test_a_class_of_one_size_serves_its_pods_once_the_other_has_lost_the_name(
    tmp_path: Path,
) -> None:
    exact = mapping("exact", selects=OF_ONE_SIZE, creationTimestamp="2026-01-01T00:00:00Z")
    wide = mapping("wide", creationTimestamp="2026-02-01T00:00:00Z")

    plan = planned(tmp_path, cluster(exact, wide))

    outcomes = {
        entry["object"]: entry["outcome"] for wave in plan["waves"] for entry in wave["workloads"]
    }
    assert "native" == outcomes["Deployment/zz/large"]
    assert ["wide"] == [entry["deviceClass"] for entry in plan["wideMappings"]]


def test_a_quota_gets_a_line_for_the_claims_that_the_name_counted(tmp_path: Path) -> None:
    """As long as the class maps the name, the line for the name counts the claims, and so it got no other one."""
    quota = resource_quota({f"requests.{LARGE}": "1"}, namespace="zz")

    plan = planned(tmp_path, cluster(mapping(), quota))

    added = {"mig.nvidia.com.deviceclass.resource.k8s.io/devices": "1"}
    assert {"zz.gpus.yaml": added} == {
        file: lines["added"] for file, lines in plan["quotaLines"].items()
    }


def test_what_argo_cd_takes_back_is_named(tmp_path: Path) -> None:
    managed = mapping(annotations={"argocd.argoproj.io/tracking-id": "apps:x"})

    plan = planned(tmp_path, cluster(managed))

    assert "Argo CD" == plan["managed"][f"DeviceClass//{CLASS}"]
    assert any(f"DeviceClass/{CLASS} is managed by" in note for note in plan["waves"][0]["notes"])


@pytest.mark.parametrize("form", ["scripts", "kustomize"])
def test_a_wave_does_not_begin_while_a_repository_gives_a_class_its_name_back(
    tmp_path: Path, form: str
) -> None:
    """A note said so, and the next sync had pods with the key get any of its devices again."""
    tracked = {"argocd.argoproj.io/tracking-id": "apps:x"}
    planned(tmp_path, cluster(mapping(annotations=tracked)), "--format", form)
    prepared = {**mapping(annotations=tracked)}
    prepared["spec"] = {"selectors": prepared["spec"]["selectors"]}

    failed = before(tmp_path, cluster(prepared))

    is_stopped = form == "scripts"
    assert is_stopped is (f"DeviceClass//{CLASS}" in failed), failed
    first_page = (tmp_path / "plan" / "README.md").read_text()
    text = f"would take back the resource name that prepare.sh changes in DeviceClass/{CLASS}"
    assert is_stopped is (text in first_page)


# --- the preparation ------------------------------------------------------------------------------


def run_prepare(tmp_path: Path, mapped: str) -> tuple[int, str, str]:
    """Status, calls and errors of `prepare.sh` in a cluster with this resource name in each class."""
    answer = f'case "$*" in "get deviceclass"*) echo {mapped} ;; esac'
    ran = run_script(tmp_path, "prepare.sh", {"kubectl": answer})
    return ran.returncode, (tmp_path / "calls").read_text(), ran.stderr


@pytest.mark.parametrize(("mapped", "is_taken"), [(LARGE, True), ("", False), (SMALL, False)])
def test_the_preparation_takes_only_that_name(tmp_path: Path, mapped: str, is_taken: bool) -> None:
    planned(tmp_path, cluster(mapping()))

    status, calls, errors = run_prepare(tmp_path, mapped)

    assert 0 == status, errors
    assert (UNMAP in calls) is is_taken


@pytest.mark.parametrize(("mapped", "status"), [(LARGE, 1), ("", 0)])
def test_a_repository_takes_the_name_and_the_preparation_waits_for_it(
    tmp_path: Path, mapped: str, status: int
) -> None:
    planned(tmp_path, cluster(mapping()), "--format", "kustomize")
    folder = tmp_path / "plan" / "kustomize" / "prepare"

    patch = (folder / f"deviceclass.{CLASS}.yaml").read_text()
    ended, calls, errors = run_prepare(tmp_path, mapped)

    assert "extendedResourceName: null" in patch
    assert status == ended, errors
    assert UNMAP not in calls
    assert (f"held: DeviceClass {CLASS} maps {LARGE} still" in errors) is (status == 1)


def test_what_a_chart_maps_is_taken_back_once(tmp_path: Path) -> None:
    """HAMi's chart maps the name of whole GPUs, and the preparation has that step already."""
    driver = "hami-core-gpu.project-hami.io"
    key = "nvidia.com/gpu"
    class_ = mapping(driver, key, f"device.driver == '{driver}'")
    register = json.dumps(
        [{"id": "GPU-0", "count": 10, "devmem": 40960, "devcore": 100, "type": "A100"}]
    )
    hami = [
        node(name, {key: "10"}, {"gpu": "on"}, {"hami.io/node-nvidia-register": register})
        for name in ("h0", "h1")
    ]
    share = {key: "1", "nvidia.com/gpumem": "8000"}

    planned(
        tmp_path, [*hami, namespace("aa"), *workload("web", share, ["h0"], namespace="aa"), class_]
    )

    assert 1 == prepare(tmp_path).count(f"kubectl patch deviceclass {driver}")


# --- before a wave --------------------------------------------------------------------------------


def test_no_wave_begins_while_the_class_has_the_name(tmp_path: Path) -> None:
    planned(tmp_path, cluster(mapping()), "--wave-nodes", 2)

    (message,) = before(tmp_path, cluster(mapping())).values()

    assert message.startswith(f"it maps {LARGE}, and selects more")
    assert UNMAP in message
    assert {} == before(tmp_path, cluster(device_class(OF_ALL_SIZES, name=CLASS)))
    # A person may give the name to a class of that size instead.
    assert {} == before(tmp_path, cluster(mapping("large", selects=OF_ONE_SIZE)))


def test_a_mapping_that_came_after_the_plan_stops_a_wave(tmp_path: Path) -> None:
    planned(tmp_path, cluster(device_class(OF_ALL_SIZES, name=CLASS)), "--wave-nodes", 2)

    assert [f"DeviceClass//{CLASS}"] == list(before(tmp_path, cluster(mapping())))


# --- the assessment -------------------------------------------------------------------------------


@pytest.mark.parametrize("output", ["text", "json", "html"])
def test_an_assessment_names_the_class(tmp_path: Path, output: str) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(cluster(mapping())))

    result = drawbridge("assess", "--snapshot", file, "-o", output)

    assert 0 == result.exit_code, result.stderr
    text = " ".join(result.stdout.split())
    if output == "json":
        (entry,) = json.loads(result.stdout)["wideMappings"]
        assert (CLASS, LARGE) == (entry["deviceClass"], entry["resource"])
    else:
        assert f"DeviceClass {CLASS} maps {LARGE}, and selects more" in text
        assert "prepare.sh of a plan takes the name from it" in text


def test_an_assessment_without_such_a_class_says_nothing(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(cluster(api_object("ConfigMap", "x", "aa"))))

    assert "mappings" not in drawbridge("assess", "--snapshot", file).stdout
    assert "too wide" not in drawbridge("assess", "--snapshot", file, "-o", "html").stdout
