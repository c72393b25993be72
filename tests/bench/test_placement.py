"""The suite of placement, on a trace of a few nodes."""

import csv
import gzip
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench import openb, placement
from bench.__main__ import main
from bench.report import points

NODES = [
    {"sn": f"node-{number}", "cpu_milli": "16000", "memory_mib": "65536", "gpu": "2", "model": "T4"}
    for number in range(4)
]
PODS = [
    {
        "name": f"pod-{number}",
        "cpu_milli": str(2000 + 2000 * (number % 3)),
        "memory_mib": "1024",
        "num_gpu": str(number % 4 and 1),
        "gpu_milli": str((1000, 500, 250)[number % 3]),
        "gpu_spec": "",
    }
    for number in range(24)
]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    for name, rows in (
        (openb.NODES, NODES),
        *((openb.workload_file(tmp_path, workload).name, PODS) for workload in placement.WORKLOADS),
    ):
        with gzip.open(tmp_path / name, "wt", encoding="utf-8", newline="") as text:
            writer = csv.DictWriter(text, rows[0])
            writer.writeheader()
            writer.writerows(rows)
    lines = ["workload,policy,seeds,share_at_100,share_at_130"]
    lines += [f"{workload},06-FGD,10,90,95.5" for workload in placement.WORKLOADS]
    (tmp_path / placement.PUBLISHED).write_text("\n".join(lines), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("strategy", placement.ALL)
def test_every_strategy_has_a_share_that_a_seed_repeats(trace: Path, strategy: str) -> None:
    case = placement.Case(trace, "default", 42, strategy)
    share = placement.share_of(case)
    assert 50 < share <= 100
    assert placement.share_of(case) == share


def test_a_folder_without_the_files_is_refused_with_their_names(trace: Path) -> None:
    (trace / placement.PUBLISHED).unlink()
    (trace / openb.NODES).unlink()

    result = CliRunner().invoke(main, ["--only", "placement", "--traces", str(trace)])

    assert result.exit_code == 2
    assert "--traces" in result.stderr
    assert f"lacks {openb.NODES}, {placement.PUBLISHED};" in " ".join(result.stderr.split())


def test_the_goals_of_a_workload(trace: Path) -> None:
    assert placement.published_shares(trace)["multigpu50"] == 95.5
    shares = dict.fromkeys(placement.ALL, 94.0) | {placement.FGD: 95.0, placement.OURS: 94.2}

    missed = {
        result.name
        for result in placement.results("multigpu50", shares, {"multigpu50": 95.0})
        if not result.met
    }

    # 0.8 below FGD is within a point, and 0.2 above stock is not one.
    assert missed == {"multigpu50: FragmentationAware, beside stock, % of GPUs"}
    assert placement.mean_shares(
        [placement.Case(trace, "default", seed, "stock") for seed in (1, 2)], [90.0, 91.0]
    ) == {"stock": 90.5}


def test_the_anchor_is_the_better_of_the_published_and_the_measured_policy() -> None:
    shares = dict.fromkeys(placement.ALL, 94.0) | {placement.FGD: 90.0, placement.OURS: 95.2}

    anchors = {
        result.name: (result.anchor, result.met)
        for result in placement.results("cpu200", shares, {"cpu200": 95.8})
    }

    assert anchors["cpu200: FragmentationAware, beside FGD, % of GPUs"] == (95.8, False)


def test_the_whole_suite_ends_with_the_best_workload(
    trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "SEEDS", (42,))
    monkeypatch.setattr(placement, "ALL", (placement.FGD, *placement.BRIEF_STRATEGIES))

    *rows, last = placement.measure(trace)

    assert last.name == "the best of 4 workloads: FragmentationAware, beside FGD, % of GPUs"
    beside_fgd = [row for row in rows if f"{placement.OURS}, beside FGD" in row.name]
    best = max(row.ours - (row.anchor or 0) for row in beside_fgd)
    assert last.ours - (last.anchor or 0) == pytest.approx(best)


def test_the_harness_is_compared_seed_by_seed() -> None:
    near = placement.validation("cpu200", {42: 94.5, 43: 94.7, 44: 94.3})
    far = placement.validation("cpu200", {42: 94.0, 43: 94.3, 44: 94.1})

    assert (True, False) == (near.met, far.met)
    assert near.ours == pytest.approx(0.5)


def test_the_order_of_the_paper() -> None:
    """All pods and then clones, or fewer pods."""
    pods = [
        {**PODS[0], "name": f"pod-{number}", "num_gpu": "1", "gpu_milli": "1000"}
        for number in range(9)
    ]

    more = openb.paper_arrivals(pods, 10_000, 42)
    fewer = openb.paper_arrivals(pods, 5_000, 42)

    assert 13 == len(more)
    assert {pod["name"] for pod in pods} == {pod["name"] for pod in more[:9]}
    assert 6 == len(fewer)
    assert more == openb.paper_arrivals(reversed(pods), 10_000, 42)


def test_the_short_form_has_three_strategies(trace: Path) -> None:
    names = [result.name for result in placement.measure_briefly(trace)]
    assert names == [
        f"default: {strategy}, beside stock, % of GPUs"
        for strategy in (placement.OURS, "CompactFirst")
    ]


def test_without_the_trace_the_suite_says_what_it_needs() -> None:
    called = CliRunner().invoke(main, ["--only", "placement"])
    assert called.exit_code == 2
    assert "--only placement needs --traces" in called.output


def test_points_are_compared_as_they_are_and_not_as_shown() -> None:
    assert points("x", 94.0, 94.5, at_least=-0.5).met
    assert not points("x", 93.999, 94.5, at_least=-0.5).met
    assert points("x", 94.0, 94.5, at_least=-0.5).goal == "at least the anchor - 0.5 points"
