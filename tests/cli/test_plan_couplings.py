"""`drawbridge plan`: the waves that a migration should not pause after."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from cli.runbooks.plan_folder import read_plan
from cli.runbooks.runbooks import readme
from testing.builders import HAMI, hami_gpu
from testing.documents import namespace, node, resource_slice
from testing.migration import GPU, SHARE, hami_node, plugin_node, running_job, workload
from testing.plan import call, document, planned, script, waves

FULL: Final = {GPU: "1", "nvidia.com/gpumem": "40960"}
PAUSE: Final = "no place to pause after it: "


def reasons(plan: Mapping[str, Any]) -> dict[int, str]:
    """Wave to the reasons that a migration should not pause after it."""
    return {
        wave["wave"]: note.removeprefix(PAUSE)
        for wave in plan["waves"]
        for note in wave["notes"]
        if note.startswith(PAUSE)
    }


def test_a_migration_may_pause_after_waves_that_leave_nothing_half_done(tmp_path: Path) -> None:
    nodes = [plugin_node(f"gpu-{number}") for number in range(3)]
    objects = [*nodes, namespace("team"), *workload("web", {GPU: "1"}, ["gpu-0"])]

    plan = planned(tmp_path, objects, "--wave-nodes", 1)

    assert {} == reasons(plan)
    assert [0, 0, 0] == [wave["coupledUntil"] for wave in plan["waves"]]


def test_nodes_that_nobody_may_use_yet_couple_waves(tmp_path: Path) -> None:
    nodes = [hami_node(f"hami-{number}") for number in range(4)]
    large = workload("large", FULL, ["hami-0", "hami-0", "hami-1"])

    plan = planned(tmp_path, [*nodes, *large], "--wave-nodes", 1)

    assert {1: "no pod may use hami-2 until wave 2 gives some claims"} == reasons(plan)
    assert [2, 0, 0, 0] == [wave["coupledUntil"] for wave in plan["waves"]]


def test_a_namespace_in_parts_couples_waves(tmp_path: Path) -> None:
    objects = [hami_node(f"hami-{number}", 2) for number in range(6)]
    for number in range(7):
        objects += workload(f"web-{number}", FULL, [f"hami-{number // 2}"], namespace="ml")

    plan = planned(tmp_path, objects, "--wave-nodes", 2)

    (last,) = (wave["wave"] for wave in plan["waves"] if wave["namespaces"] == ["ml"])
    first = next(wave["wave"] for wave in plan["waves"] if wave["partialNamespaces"])
    assert first < last
    assert [*range(first, last)] == sorted(reasons(plan))
    assert f"Namespace/ml is in two systems until wave {last}" in reasons(plan)[first]


def test_pods_of_a_daemon_set_that_would_wait_couple_waves(tmp_path: Path) -> None:
    names = ["hami-0", "hami-1", "hami-2"]
    monitor = workload("monitor", SHARE, names, kind="DaemonSet")
    monitor[0]["spec"]["selector"] = {"matchLabels": {"app": "monitor"}}

    result = call(
        tmp_path, [*map(hami_node, names), namespace("team"), *monitor], "--wave-nodes", 1
    )

    plan = document(tmp_path)
    assert [1, 2] == sorted(reasons(plan))
    waiting = "a pod of DaemonSet/team/monitor that ends on hami-1, hami-2 gets no devices"
    assert waiting in reasons(plan)[1]
    assert "until wave 3" in reasons(plan)[1]
    assert "no place to pause after it" in result.stdout
    assert 1 == script(tmp_path, "preflight").count(PAUSE)
    assert f"# Note: {PAUSE}" in script(tmp_path, "switch")
    page = (tmp_path / "plan" / "README.md").read_text()
    assert PAUSE in page
    assert "Do waves 1 to 3 in one sitting: " in page
    assert "Workloads are those that get claims with a wave" in page


def test_the_readme_says_what_its_numbers_count(tmp_path: Path) -> None:
    """It counted pods that run out among the workloads that get claims, and no node of unknown devices as free."""
    names = ["hami-0", "hami-1", "hami-2"]
    web, job = workload("web", SHARE, ["hami-0"]), running_job("train", SHARE, ["hami-1"])

    call(tmp_path, [*map(hami_node, names), namespace("team"), *web, *job], "--wave-nodes", 1)

    page = " ".join((tmp_path / "plan" / "README.md").read_text().split())
    assert "Those whose pods run to their end count, too, and these pods keep their keys: " in page
    assert "A node with pods whose devices are not known, " in page


def test_a_wave_that_ends_one_sitting_and_begins_another_is_inside_one(tmp_path: Path) -> None:
    """A reader found waves 3 to 4 and waves 4 to 7, each in one sitting."""
    objects = [*(hami_node(f"hami-{number}") for number in range(4)), namespace("team")]
    call(tmp_path, [*objects, *workload("web", SHARE, ["hami-0"])], "--wave-nodes", 1)
    plan = read_plan(tmp_path / "plan")
    coupled = tuple(
        msgspec.structs.replace(wave, coupled_until=until)
        for wave, until in zip(plan.waves, (2, 3, 0, 0), strict=True)
    )

    page = readme(msgspec.structs.replace(plan, waves=coupled))

    assert ["Do waves 1 to 3 in one sitting: the notes say what is half done between them."] == [
        line for line in page.splitlines() if "in one sitting" in line
    ]


def test_a_namespace_with_nodes_waits_for_no_job_though_other_nodes_are_left(
    tmp_path: Path,
) -> None:
    """One node without work that fits in no wave made it wait for the Job of another namespace."""
    objects = [
        *(node("dra-0"), hami_node("hami-0"), plugin_node("gpu-0")),
        *(namespace("team"), namespace("other"), namespace("whole")),
        resource_slice(hami_gpu(), driver=HAMI, node="dra-0"),
        *running_job("train", SHARE, ["hami-0"], namespace="other"),
        *workload("web", SHARE, ["hami-0"]),
        *workload("full", {GPU: "4"}, ["gpu-0"], namespace="whole"),
    ]

    plan = planned(tmp_path, objects, "--wave-nodes", 2, "--spare-nodes", 0)

    assert [([], ["other", "team"]), (["hami-0"], [])] == waves(plan)
