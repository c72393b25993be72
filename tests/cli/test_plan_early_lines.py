"""`drawbridge plan`: lines of quotas for pods that were opted in before it, and changes that would leave them too low."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from testing.builders import HAMI
from testing.command import drawbridge
from testing.documents import api_object, namespace, resource_quota
from testing.migration import GPU, SHARE, WHOLE, early_namespace, hami_node, plugin_node, workload
from testing.plan import failed_before, held_objects, planned

LABEL: Final = "drawbridge.internal/translate"
KEY: Final = f"requests.{GPU}"
NVIDIA: Final = "gpu.nvidia.com.deviceclass.resource.k8s.io/devices"
SHARES: Final = "hami-core-gpu.project-hami.io.deviceclass.resource.k8s.io/devices"
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
