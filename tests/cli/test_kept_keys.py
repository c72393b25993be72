"""`translation.keep`: GPUs move, and NICs stay with their device plugin."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from kube.manifests.dump import dump_yaml
from migration.plan.stage.stage_allocator import (
    DriverDevices,
    drivers_with_fewer_free,
    free_shortage,
)
from testing.command import drawbridge
from testing.documents import api_object, namespace, node
from testing.migration import (
    GPU,
    SHARE,
    hami_node,
    plugin_node,
    resource_slice,
    running_job,
    workload,
)
from testing.plan import held_objects, planned, script, waves

KEEP: Final = ["rdma", "sriov", "multus", "nvidia.com/sriov_rdma"]
POOL: Final = {"rdma/hca": "1"}
CODE: Final = "keptBesideClaims"
NOTE: Final = "pods keep device keys beside claims (translation.keep)"


def settings(folder: Path, keep: list[str]) -> Path:
    path = folder / "settings.yaml"
    path.write_text(dump_yaml([{"translation": {"keep": keep}}]))
    return path


def nodes() -> list[dict[str, Any]]:
    """Two nodes of HAMi, each with shares of a pool of NICs."""
    found = [hami_node("hami-0"), hami_node("hami-1")]
    for entry in found:
        entry["status"]["allocatable"] |= {"rdma/hca": "100", "nvidia.com/sriov_rdma": "8"}
    return found


def assessed(folder: Path, limits: dict[str, str], keep: list[str]) -> dict[str, Any]:
    """Return a workload with these keys as `assess` lists it; nothing if it does not."""
    file = folder / "cluster.yaml"
    file.write_text(dump_yaml([*nodes(), namespace("team"), *workload("web", limits, ["hami-0"])]))
    result = drawbridge(
        "assess", "--snapshot", file, "--settings", settings(folder, keep), "-o", "json"
    )
    return next(iter(json.loads(result.stdout)["workloads"]), {})


@pytest.mark.parametrize(
    ("limits", "outcome", "codes"),
    [
        ({**SHARE, **POOL}, "translated", [CODE]),
        ({GPU: "1", **POOL}, "native", [CODE]),
        ({**SHARE, "nvidia.com/sriov_rdma": "1"}, "translated", [CODE]),
        ({**SHARE, "nvidia.com/hostdev": "1"}, "translated", [CODE]),
        ({**SHARE, "rdma/hca": "0"}, "translated", []),
        (SHARE, "translated", []),
        (POOL, None, None),
    ],
    ids=["a share", "a GPU", "by name", "of NVIDIA's names", "none", "no NIC", "a NIC alone"],
)
def test_pods_keep_the_keys_of_nics_beside_claims(
    tmp_path: Path, limits: dict[str, str], outcome: str | None, codes: list[str] | None
) -> None:
    """A pod with `nvidia.com/sriov_rdma` was `unknown`, so its nodes had no wave."""
    entry = assessed(tmp_path, limits, KEEP)

    assert (outcome, codes) == (entry.get("outcome"), entry.get("codes"))


def test_assess_proposes_the_setting_where_plan_holds_workloads_without_it(tmp_path: Path) -> None:
    """It said that nothing blocks, and plan held them all."""
    workloads = [
        *workload("pool", {**SHARE, **POOL}, ["hami-0"]),
        *workload("named", {**SHARE, "nvidia.com/sriov_rdma": "1"}, ["hami-0"]),
        *workload("gpu", SHARE, ["hami-0"]),
    ]
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml([*nodes(), namespace("team"), *workloads]))
    call = ("assess", "--snapshot", file)

    text = " ".join(drawbridge(*call).stdout.split())
    page = drawbridge(*call, "-o", "html").stdout
    proposed = json.loads(drawbridge(*call, "-o", "json").stdout)["keysToKeep"]

    assert {
        "nvidia.com/sriov_rdma": ["Deployment/team/named"],
        "rdma": ["Deployment/team/pool"],
    } == proposed
    for name, cause in (
        ("rdma", "rdma has no DRA driver here, so plan holds Deployment/team/pool: "),
        (
            "nvidia.com/sriov_rdma",
            "nothing translates nvidia.com/sriov_rdma, so plan holds Deployment/team/named: if that is no GPU of the node, ",
        ),
    ):
        assert f"{cause}translation.keep: [{name}] of the settings leaves it" in text
    assert "To keep" in page
    flags = ("--settings", settings(tmp_path, list(proposed)))
    assert {} == json.loads(drawbridge(*call, *flags, "-o", "json").stdout)["keysToKeep"]


def test_a_held_node_names_the_setting_for_a_name_that_nothing_translates(tmp_path: Path) -> None:
    """Its fix was to wait for the pods, or to move them by hand."""
    named = workload("named", {**SHARE, "nvidia.com/sriov_rdma": "1"}, ["hami-0"])

    plan = planned(tmp_path, [*nodes(), namespace("team"), *named])

    (fix,) = {entry["fix"] for entry in plan["held"] if entry["object"] == "Node//hami-0"}
    assert fix.startswith(
        "leave nvidia.com/sriov_rdma with its device plugin by translation.keep of the settings, or solve what assess"
    )


def test_without_the_setting_nics_become_claims(tmp_path: Path) -> None:
    assert CODE not in assessed(tmp_path, {**SHARE, **POOL}, [])["codes"]


def test_a_plan_moves_gpus_and_says_what_stays(tmp_path: Path) -> None:
    objects = [*nodes(), namespace("team"), *workload("web", {**SHARE, **POOL}, ["hami-0"])]

    plan = planned(tmp_path, objects, "--settings", settings(tmp_path, KEEP))

    assert {"hami-0", "hami-1"} == {
        node["name"] for wave in plan["waves"] for node in wave["nodes"]
    }
    (wave,) = (wave for wave in plan["waves"] if "team" in wave["namespaces"])
    (note,) = (note for note in wave["notes"] if NOTE in note)
    assert note.startswith("Deployment/team/web: ")
    assert note in script(tmp_path, "preflight", wave["wave"])
    assert "keep:" in (tmp_path / "plan" / "settings.yaml").read_text()


def test_pods_that_are_waited_for_get_no_devices_anew(tmp_path: Path) -> None:
    """The note told that they get both on one node, and nothing creates them again."""
    train = running_job("train", {**SHARE, **POOL}, ["hami-0"])
    objects = [*nodes(), namespace("team"), *train]

    plan = planned(tmp_path, objects, "--settings", settings(tmp_path, KEEP))

    assert any(work["waits"] for wave in plan["waves"] for work in wave["work"])
    assert not any(NOTE in note for wave in plan["waves"] for note in wave["notes"])


def test_no_pod_goes_to_a_node_without_its_nics(tmp_path: Path) -> None:
    """The only other node has no NICs, so the first one cannot be drained."""
    found = nodes()
    del found[1]["status"]["allocatable"]["rdma/hca"]
    objects = [*found, namespace("team"), *workload("web", {**SHARE, **POOL}, ["hami-0"])]

    plan = planned(tmp_path, objects, "--settings", settings(tmp_path, KEEP))

    assert not [wave["nodes"] for wave in plan["waves"]]
    assert "Node//hami-0" in held_objects(plan)


def test_the_webhook_leaves_the_key_and_says_so(tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    spec = workload("web", {**SHARE, **POOL}, [])[0]["spec"]["template"]["spec"]
    pod = api_object("Pod", "web", spec=spec)
    file.write_text(dump_yaml([pod]))

    result = drawbridge("translate", "-f", file, "--settings", settings(tmp_path, KEEP))

    assert 'rdma/hca: "1"' in result.stdout
    assert "nvidia.com/gpumem:" not in result.stdout
    assert "rdma/hca stays with its device plugin: the pod gets both on one node" in result.stderr


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("nics", "translation.keep: no vocabulary nics; known are aliyun, "),
        ("rdma/hca", "translation.keep: rdma/hca is translated by the vocabulary rdma; name that"),
    ],
)
def test_a_name_that_cannot_stay_is_rejected(tmp_path: Path, name: str, fault: str) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(dump_yaml([namespace("team")]))

    result = drawbridge("translate", "-f", file, "--settings", settings(tmp_path, [name]))

    assert 2 == result.exit_code
    assert fault in result.stderr


# --- devices of any vendor beside GPUs ------------------------------------------------------------

QAT: Final = "intel.com/qat"
AMD: Final = "amd.com/gpu"
NVIDIA: Final = "gpu.nvidia.com"


def accelerated(name: str) -> dict[str, Any]:
    """Return a node with four GPUs, and functions of QuickAssist."""
    entry = plugin_node(name)
    entry["status"]["allocatable"] |= {QAT: "63"}
    return entry


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        (["resources"], {NVIDIA: 4}),
        (["rdma"], {NVIDIA: 4, "qat.intel.com": 63}),
        ([], {NVIDIA: 4, "qat.intel.com": 63}),
    ],
    ids=["they stay", "others stay", "none stays"],
)
def test_a_wave_takes_no_devices_that_stay(
    tmp_path: Path, keep: list[str], expected: dict[str, int]
) -> None:
    """It took their driver's label, and ended only when the plugin that was to stay had left."""
    objects = [*map(accelerated, ("gpu-0", "gpu-1")), namespace("team")]
    flags = ("--wave-nodes", 1, "--settings", settings(tmp_path, keep))

    plan = planned(tmp_path, [*objects, *workload("web", {GPU: "1"}, ["gpu-0"])], *flags)

    (first, *_) = [entry for wave in plan["waves"] for entry in wave["nodes"]]
    assert expected == first["devices"]
    assert ("qat.intel.com" in expected) is (QAT in first["resources"])
    assert ("qat.intel.com" in expected) is ("qat.intel.com" in str(first["labels"]))


@pytest.mark.parametrize(("keep", "status"), [(["resources"], 0), ([], 1)])
def test_a_node_is_switched_beside_devices_that_stay(
    tmp_path: Path, keep: list[str], status: int
) -> None:
    entry = accelerated("gpu-0")
    entry["status"]["allocatable"][GPU] = "0"
    file = tmp_path / "now.yaml"
    file.write_text(dump_yaml([entry, resource_slice("gpu-0", NVIDIA, ("a", "b", "c", "d"))]))
    question = ("--node", "gpu-0", "--expect-devices", f"{NVIDIA}=4")

    result = drawbridge(
        "verify", "--snapshot", file, *question, "--settings", settings(tmp_path, keep)
    )

    assert status == result.exit_code, result.stdout


@pytest.mark.parametrize("keep", [["resources"], ["example.com/encoder"]], ids=["qat", "by name"])
def test_a_node_with_devices_that_stay_alone_is_not_held(tmp_path: Path, keep: list[str]) -> None:
    key = QAT if keep == ["resources"] else "example.com/encoder"
    other = node("other", {key: "63"}, {}, {})

    plan = planned(
        tmp_path,
        [plugin_node("gpu-0"), plugin_node("gpu-1"), other],
        *("--settings", settings(tmp_path, keep)),
    )

    assert {} == held_objects(plan)
    assert ["gpu-0", "gpu-1"] == sorted(name for names, _ in waves(plan) for name in names)


def test_gpus_of_hami_are_planned_while_its_vocabulary_is_in_force(tmp_path: Path) -> None:
    """`nvidia.com/gpu` is a key of both vocabularies."""
    file = tmp_path / "settings.yaml"
    translation = {"keep": ["nvidia"], "defaultGpuOwner": "hami"}
    file.write_text(dump_yaml([{"translation": translation}]))
    flags = ("--settings", file)

    plan = planned(
        tmp_path, [*nodes(), namespace("team"), *workload("web", SHARE, ["hami-0"])], *flags
    )

    assert ["hami-0", "hami-1"] == sorted(name for names, _ in waves(plan) for name in names)


@pytest.mark.parametrize(("percentage", "is_held"), [(30, True), (10, False)])
def test_free_devices_of_another_driver_are_no_free_gpus(
    tmp_path: Path, percentage: int, *, is_held: bool
) -> None:
    """Idle functions of QuickAssist filled the share of free devices, and a wave took the last GPUs."""
    names = [f"gpu-{number}" for number in range(3)]
    pods = workload("web", {GPU: "1"}, ["gpu-0"] * 4 + ["gpu-1"] * 3)

    plan = planned(
        tmp_path,
        [*map(accelerated, names), namespace("team"), *pods],
        *("--wave-nodes", 1, "--keep-free", percentage),
    )

    held = held_objects(plan)
    assert is_held is any(
        f"1 of 8 devices of {NVIDIA} are free, and --keep-free 30 asks for 3" in text
        for text in held.values()
    )
    assert is_held is not bool(waves(plan))


@pytest.mark.parametrize("percentage", [0, 5])
def test_a_wave_of_namespaces_alone_counts_the_drivers_that_it_takes_devices_of(
    tmp_path: Path, percentage: int
) -> None:
    """GPUs of AMD that were all in use kept the namespaces of HAMi's from waves of their own."""
    amd = [
        node(
            f"amd-{number}", {AMD: "8"}, {"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}, {}
        )
        for number in range(2)
    ]
    objects = [*(hami_node(f"hami-{number}", 4) for number in range(4)), *amd]
    objects += workload("serve", {AMD: "8"}, ["amd-0", "amd-1"], namespace="team-x")
    for number in range(2):
        objects += workload("web", SHARE, ["hami-2"], namespace=f"team-{number}")
        objects += running_job("train", SHARE, [f"hami-{2 + number}"], namespace=f"job-{number}")
    names = ("team-x", "team-0", "team-1", "job-0", "job-1")

    plan = planned(
        tmp_path,
        [*objects, *map(namespace, names)],
        *("--wave-nodes", 1, "--keep-free", percentage),
    )

    assert ["team-1"] == [
        name for wave in plan["waves"] if not wave["nodes"] for name in wave["namespaces"]
    ]


def test_the_drivers_of_which_a_wave_takes_devices() -> None:
    before = {"a": DriverDevices(0, 8), "b": DriverDevices(3, 8)}
    after = {"a": DriverDevices(0, 8), "b": DriverDevices(2, 8)}

    assert {"b"} == drivers_with_fewer_free(before, after)
    assert "2 of 8 devices of b are free" in free_shortage(after, 50, {"b"})
    assert not drivers_with_fewer_free(after, before)
