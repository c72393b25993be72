"""Scripts of a plan for nodes of Koordinator: its Devices are deleted after koordlet has left."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from testing.builders import koordinator_annotations
from testing.documents import api_object, namespace, node
from testing.migration import GPU, WHOLE, daemon_set, hami_node, workload
from testing.plan import held_objects, planned, prepare, run_script, script

LABEL: Final = "drawbridge.internal/dra-driver=hami-core-gpu.project-hami.io"
DELETED: Final = "kubectl delete devices.scheduling.koordinator.sh koord-0 "
KUBECTL: Final = r"""
case "$*" in
  "get pods --all-namespaces --field-selector=spec.nodeName=koord-0 "*)
    echo "probe-1 DaemonSet/probe probe:1"
    if [ ! -e @GONE@ ]; then echo "agent-x DaemonSet/koordlet koordlet:1"; @THEN@; fi ;;
  "get nodes --selector="*) echo node/koord-0 ;;
esac
"""


def cluster() -> list[Mapping[str, Any]]:
    gpu = {"type": "gpu", "id": "GPU-0", "resources": {"koordinator.sh/gpu-memory": "40Gi"}}
    registered = api_object("Device", "koord-0", spec={"devices": [gpu]})
    koord = node("koord-0", {}, {}, {})
    return [koord, registered, daemon_set("koordlet"), hami_node("hami-0"), hami_node("hami-1")]


def calls_of(
    tmp_path: Path, name: str, then: str, *options: str, seconds: int = 600
) -> tuple[int, list[str], str]:
    """Return status, calls and errors of a script; koordlet stays until a command has run."""
    shared = tmp_path / "plan" / "cluster.sh"
    text = shared.read_text().replace("leave_seconds=600", f"leave_seconds={seconds}")
    shared.write_text(text.replace("sleep 2", "sleep 0"))
    kubectl = KUBECTL.replace("@GONE@", f"{tmp_path}/gone").replace("@THEN@", then)
    ran = run_script(tmp_path, name, {"kubectl": kubectl}, options)
    return ran.returncode, (tmp_path / "calls").read_text().splitlines(), ran.stderr


def wave_of_koordinator(tmp_path: Path) -> int:
    plan = planned(tmp_path, cluster(), "--wave-nodes", 1)
    (number,) = (
        wave["wave"] for wave in plan["waves"] if "koord-0" in {n["name"] for n in wave["nodes"]}
    )
    return int(number)


def test_what_koordlet_registered_is_deleted_once_its_pod_has_gone(tmp_path: Path) -> None:
    """It was deleted at once, and the koordlet that still ended wrote it again."""
    number = wave_of_koordinator(tmp_path)
    step = ("--step", "drain/koord-0")

    status, calls, told = calls_of(
        tmp_path, f"wave-{number}/switch.sh", f"touch {tmp_path}/gone", *step
    )

    assert (0, "") == (status, told)
    asked = [place for place, call in enumerate(calls) if "--all-namespaces" in call]
    (deleted,) = (place for place, call in enumerate(calls) if call.startswith(DELETED))
    assert 2 == len(asked)
    assert deleted > asked[-1]


def test_a_koordlet_that_stays_stops_the_switch(tmp_path: Path) -> None:
    number = wave_of_koordinator(tmp_path)

    status, calls, told = calls_of(
        tmp_path, f"wave-{number}/switch.sh", ":", "--step", "drain/koord-0", seconds=0
    )

    assert 1 == status
    assert not any(call.startswith(DELETED) for call in calls)
    assert "agent-x is still on koord-0, and registers its GPUs for Koordinator" in told
    assert "stopped at: wait until koordlet has left koord-0" in told


def test_prepare_deletes_what_koordlet_registered_where_it_has_come_back(tmp_path: Path) -> None:
    """After an upgrade of its chart the page said to run prepare.sh again, and switched nodes kept their Device."""
    wave_of_koordinator(tmp_path)

    text = prepare(tmp_path)

    change = text.index("change_object daemonset/koordlet")
    assert text.index(f"forget_switched {LABEL}") > change


@pytest.mark.parametrize("phase", ["switch", "rollback"])
def test_a_way_back_deletes_nothing_of_koordlet(tmp_path: Path, phase: str) -> None:
    number = wave_of_koordinator(tmp_path)

    assert (phase == "switch") is ("forget_registered koord-0" in script(tmp_path, phase, number))


def test_gpus_and_nics_of_one_root_move_with_what_koordlet_tells_of_it(tmp_path: Path) -> None:
    """No assumed GPU had a root, so the pods were rejected, and the fix was to give their alignment up."""
    joint = {"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"}
    limits = {"koordinator.sh/gpu": "200", "koordinator.sh/rdma": "100"}
    pods = workload("train", limits, ["koord-0"], schedulerName="koord-scheduler")
    for metadata in (pods[0]["spec"]["template"]["metadata"], pods[1]["metadata"]):
        metadata["annotations"] = koordinator_annotations(joint=joint)
    objects = [*pods, namespace("team")]
    for name in ("koord-0", "koord-1"):
        gpus = [
            {
                "type": "gpu",
                "id": f"GPU-{name}-{number}",
                "resources": {"koordinator.sh/gpu-memory": "40Gi"},
                "topology": {"pcieID": f"pci0000:0{number // 2}"},
            }
            for number in range(4)
        ]
        objects += [node(name, {}, {}, {}), api_object("Device", name, spec={"devices": gpus})]

    plan = planned(tmp_path, objects)

    held = held_objects(plan)
    assert "unsupportedAsPublished" not in str(held)
    assert "would have devices of dranet" in held["Deployment/team/train"]
    (fix,) = (entry["fix"] for entry in plan["held"] if entry["object"] == "Deployment/team/train")
    assert "NICs that Koordinator hands out on switched nodes only" in fix


def test_whole_gpus_get_no_node_that_offers_names_of_koordinator_alone(tmp_path: Path) -> None:
    """Their node was drained, and they were to be on the other one, without the name `nvidia.com/gpu`."""
    share = {"koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory-ratio": "50"}
    objects = [
        *workload("web", WHOLE, ["any-0"] * 3),
        *workload("asr", share, ["own-0"], namespace="infer", schedulerName="koord-scheduler"),
        *(namespace("team"), namespace("infer")),
    ]
    for name, number, offered in (("any-0", 3, {GPU: "3"}), ("own-0", 4, {})):
        amounts = dict.fromkeys(share, f"{number}00")
        gpus = [
            {
                "type": "gpu",
                "id": f"GPU-{name}-{minor}",
                "resources": {"koordinator.sh/gpu-memory": "40Gi"},
            }
            for minor in range(number)
        ]
        objects.append(node(name, {**amounts, **offered}, {}, {}))
        objects.append(api_object("Device", name, spec={"devices": gpus}))

    assert [] == planned(tmp_path, objects, "--keep-free", 0)["waves"]


@pytest.mark.parametrize("offered", [{GPU: "1"}, {}])
def test_a_node_of_two_names_says_whose_driver_it_gets(
    tmp_path: Path, offered: Mapping[str, str]
) -> None:
    """Beside koordlet a fleet of NVIDIA's device plugin went to HAMi's driver without a word of it."""
    objects = cluster()
    objects[0] = node("koord-0", offered, {}, {})

    plan = planned(tmp_path, objects)

    notes = [note for wave in plan["waves"] for note in wave["notes"] if "has registered" in note]
    assert bool(offered) == any(
        note.startswith(
            "koordlet has registered the GPUs of koord-0, so these nodes get the driver hami-core-gpu.project-hami.io"
        )
        for note in notes
    )
    assert len(notes) == len(offered)
