"""`drawbridge plan`: lines of quotas for pods that were opted in before it, and changes that would leave them too low."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from testing.builders import HAMI
from testing.command import drawbridge
from testing.documents import api_object, namespace, resource_quota
from testing.migration import (
    GPU,
    SHARE,
    WHOLE,
    daemon_set,
    early_namespace,
    hami_node,
    plugin_node,
    workload,
)
from testing.plan import failed_before, held_objects, planned

LABEL: Final = "drawbridge.internal/translate"
KEY: Final = f"requests.{GPU}"
NVIDIA: Final = "gpu.nvidia.com.deviceclass.resource.k8s.io/devices"
SHARES: Final = "hami-core-gpu.project-hami.io.deviceclass.resource.k8s.io/devices"
MIG: Final = "nvidia.com/mig-1g.10gb"
MIG_LINE: Final = "mig.nvidia.com.deviceclass.resource.k8s.io/devices"
REFERENCE: Final = "ResourceQuota/team/gpus"
Objects = list[dict[str, Any]]


def nodes() -> Objects:
    return [
        *(plugin_node(f"gpu-{number}") for number in range(2)),
        *(hami_node(f"hami-{number}") for number in range(2)),
    ]


@pytest.mark.parametrize(("hard", "is_told"), [("1", True), ("2", False)])
def test_a_rollout_that_the_preparation_leaves_no_room_for_is_told(
    tmp_path: Path, hard: str, is_told: bool
) -> None:
    """Its next pod was rejected once prepare.sh had run, and nothing said so."""
    others = [namespace("serving"), *workload("llm", WHOLE, ["gpu-0"], namespace="serving")]
    objects = [*nodes(), *others, *early_namespace({KEY: hard, NVIDIA: "3"}, kind="Deployment")]

    plan = planned(tmp_path, objects)

    assert {GPU: "gpu.nvidia.com"} == plan["mappedClasses"]
    text = (
        "rollouts of Deployment/team/early start a pod before one ends (maxUnavailable is 0), and it would be rejected: "
        f"{KEY} of {REFERENCE} (needed 1 and 1 more for rollouts, used by others 0, hard 1) for Deployment/team/early: "
        f"raise {KEY} of {REFERENCE} to 2 before prepare.sh is run, or set maxUnavailable: 1"
    )
    script = (tmp_path / "plan" / "prepare.sh").read_text()
    assert is_told is (text in script)
    assert is_told is (text in "\n".join(plan["waves"][0]["notes"]))
    if is_told:
        assert script.index(text) < script.index("helm upgrade"), "before the first change"
    assert "Namespace//team" not in held_objects(plan), "it rolls out nothing by itself"


def test_quotas_of_an_early_namespace_that_stays_are_left_if_their_lines_would_be_too_low(
    tmp_path: Path,
) -> None:
    """The first wave added a line below the use of claims: next pods waited for theirs, and verify said nothing."""
    exactly = {"deviceClassName": HAMI, "count": 1}
    devices = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    claims = [
        api_object("ResourceClaim", f"own-{number}", "team", spec=devices) for number in range(8)
    ]
    objects = [
        *(hami_node(f"hami-{number}") for number in range(3)),
        plugin_node("gpu-0"),
        *(namespace("team", {LABEL: "true"}), resource_quota({KEY: "5"})),
        *workload("web", SHARE, ["hami-0"]),
        *(namespace("serving"), *workload("llm", SHARE, ["hami-1"], namespace="serving")),
        *claims,
    ]

    plan = planned(tmp_path, objects)

    assert plan["waves"]
    assert "Deployment/team/web" in held_objects(plan)
    assert not plan.get("earlyQuotas")
    assert "team.gpus.yaml" not in json.dumps([plan["quotaLines"], plan["quotas"]])
    assert "team" not in json.dumps(failed_before(tmp_path, objects))


def assess_text(tmp_path: Path, objects: Objects) -> str:
    """The text of `drawbridge assess`, without its line breaks."""
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    return " ".join(drawbridge("assess", "--snapshot", file).stdout.split())


def test_an_assessment_says_once_to_what_a_line_is_raised(tmp_path: Path) -> None:
    """Pods opted in already, and others, need the line: it said so twice."""
    job = workload("tune", WHOLE, ["gpu-0"])
    objects = [*nodes(), *early_namespace({KEY: "1", NVIDIA: "2"}), *job]

    text = assess_text(tmp_path, objects)

    assert 1 == text.count(f"raise {KEY} of {REFERENCE} to 3")
    assert f"raise {KEY} of {REFERENCE} to 3 before prepare.sh is run" in text


def test_a_quota_of_a_mapped_key_counts_claims_of_its_class(tmp_path: Path) -> None:
    """Its row said that it counts none."""
    others = [namespace("serving"), *workload("llm", SHARE, ["hami-0"], namespace="serving")]
    objects = [*nodes(), *others, namespace("team"), resource_quota({KEY: "4"})]

    shares = assess_text(tmp_path, [*objects, *workload("web", SHARE, ["hami-1"])])
    both = [*workload("web", SHARE, ["hami-1"]), *workload("run", WHOLE, ["gpu-0"])]
    text = assess_text(tmp_path, [*objects, *both])

    row = "ResourceQuota/team/gpus counts nvidia.com/gpu: not for pods with claims"
    assert f"{row}, unless their class maps the key" in text
    assert row in shares
    assert f"{row}, unless" not in shares


@pytest.mark.parametrize("has_others", [False, True])
def test_a_line_that_is_too_low_without_the_plan_stops_no_other_team(
    tmp_path: Path, has_others: bool
) -> None:
    """prepare.sh asked, and verify failed the first wave of all teams, though the plan changed nothing of the quota."""
    web = workload("web", SHARE, ["hami-0", "hami-0"], kind="StatefulSet")
    others = [namespace("serving"), *workload("llm", WHOLE, ["gpu-0"], namespace="serving")]
    objects = [
        *(*nodes(), namespace("team", {LABEL: "true"}), *web),
        resource_quota({KEY: "10", SHARES: "1", NVIDIA: "5"}),
        *(others if has_others else []),
    ]

    plan = planned(tmp_path, objects)

    assert not plan["quotaLines"]
    held = held_objects(plan)
    assert "Node//hami-0" in held, "its own move needs the line"
    assert "Namespace//team" not in held
    assert "Prepare all the same" not in (tmp_path / "plan" / "prepare.sh").read_text()
    assert REFERENCE not in failed_before(tmp_path, objects)


def test_present_claims_and_pods_to_drain_do_not_stop_the_preparation(tmp_path: Path) -> None:
    """One pod has its claim already, two are still to be drained, and the line has room for two."""
    web = workload("web", SHARE, ["hami-0", "hami-0"], kind="StatefulSet")
    objects = [*nodes(), *early_namespace({KEY: "2", SHARES: "2"}, SHARE), *web]

    plan = planned(tmp_path, objects)

    assert "Node//hami-0" in held_objects(plan)
    assert "Prepare all the same" not in (tmp_path / "plan" / "prepare.sh").read_text()
    assert REFERENCE not in failed_before(tmp_path, objects)


def mig_node(name: str) -> dict[str, Any]:
    node = plugin_node(name, 4)
    node["status"]["allocatable"][MIG] = "7"
    labels = {"mig.strategy": "mixed", "mig-1g.10gb.product": "NVIDIA-H100-MIG-1g.10gb"}
    labels["mig-1g.10gb.memory"] = "9856"
    node["metadata"]["labels"] |= {f"nvidia.com/{key}": value for key, value in labels.items()}
    return node


def driver(name: str, label: str) -> dict[str, Any]:
    """A DRA driver that waits for its label."""
    key, value = label.split("=")
    registry = {"name": "r", "hostPath": {"path": "/var/lib/kubelet/plugins_registry"}}
    return daemon_set(f"dra-{name}", nodeSelector={key: value}, volumes=[registry])


def with_mig(hard: str) -> Objects:
    """An early namespace with pods of MIG devices and of shares, and room for all."""
    mig = workload("mig", {MIG: "1"}, ["mig-0", "mig-1"], kind="StatefulSet")
    web = workload("web", SHARE, ["hami-0", "hami-0"], kind="StatefulSet")
    return [
        *(mig_node(f"mig-{number}") for number in range(4)),
        *(hami_node(f"hami-{number}") for number in range(2)),
        *(namespace("team", {LABEL: "true"}), *mig, *web),
        resource_quota({KEY: hard, f"requests.{MIG}": "2"}),
    ]


def test_a_line_that_is_too_low_takes_no_others_from_an_early_namespace(tmp_path: Path) -> None:
    """No line was written: the pods of MIG devices were drained, and their next ones would have been rejected."""
    objects = with_mig("1")

    plan = planned(tmp_path, objects)

    held = held_objects(plan)
    assert f"{SHARES} of {REFERENCE} (needed 2, " in held["StatefulSet/team/web"]
    assert {"mig-0", "mig-1"} <= {node["name"] for wave in plan["waves"] for node in wave["nodes"]}
    assert ["team"] == plan["earlyQuotas"]
    lines = plan["quotaLines"]["team.gpus.yaml"]
    assert {MIG_LINE: "2", NVIDIA: "0"} == lines["added"]
    (file,) = (tmp_path / "plan" / "quotas").iterdir()
    assert MIG_LINE in file.read_text()
    assert SHARES not in file.read_text()
    effects = "\n".join(plan["quotaEffects"]["team.gpus.yaml"])
    assert f"{KEY}: pods with the key 1, claims 0 (0 of class gpu.nvidia.com)" in effects


@pytest.mark.parametrize(
    ("pod", "place", "is_rejected"), [("web-1", "hami-1", True), ("mig-1", "mig-2", False)]
)
def test_pods_of_a_line_that_is_left_stop_the_wave_that_would_evict_them(
    tmp_path: Path, pod: str, place: str, is_rejected: bool
) -> None:
    """They have come to its node since, and their next ones would be rejected."""
    drivers = {HAMI: "drawbridge.internal/dra-driver=" + HAMI}
    drivers["gpu.nvidia.com"] = "nvidia.com/dra-kubelet-plugin=true"
    objects = [*with_mig("1"), *(driver(name, label) for name, label in drivers.items())]
    plan = planned(tmp_path, objects, "--plugin-label", "plugin=off")
    assert place in [node["name"] for node in plan["waves"][0]["nodes"]]
    (moved,) = (
        entry for entry in objects if entry["kind"] == "Pod" and entry["metadata"]["name"] == pod
    )
    moved["spec"]["nodeName"] = place

    failed = failed_before(tmp_path, objects)

    assert "Wave//1" in failed, "the drain has been tried"
    text = "no line counts these (quotaNotCounted)"
    assert is_rejected is (text in failed.get(REFERENCE, ""))
