"""The suite of scale, on a few nodes: its measurements, and its goals."""

from collections.abc import Iterable

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

import bench.__main__
from allocator.model.usage import gather_usage
from bench import scale
from bench.report import GOALS_MISSED, Result, below
from bench.scale_cluster import DEVICES, NoPlace, ScaledCluster, devices_in_use, two_gpus
from bench.scale_run import NEW_QUESTIONS, ROUNDS, SPARE_DECISIONS, Figures, Sizes, run
from sidecar.ownership.drift import differs

NODES = 40
SIZES = Sizes(pods=30, requests=4, slices=3)


@pytest.fixture(scope="module")
def cluster() -> ScaledCluster:
    return ScaledCluster(NODES)


@pytest.fixture(scope="module")
def figures(cluster: ScaledCluster) -> Figures:
    return run(cluster, SIZES)


def test_every_decision_and_question_is_timed(figures: Figures) -> None:
    assert figures.nodes == NODES
    counts = {
        name: len(seconds)
        for name in Figures.__struct_fields__
        if isinstance(seconds := getattr(figures, name), tuple)
    }
    assert counts == {
        "all_s": NEW_QUESTIONS,
        "learning_s": SPARE_DECISIONS,
        "decision_s": SIZES.pods,
        "new_s": NEW_QUESTIONS,
        "new_selector_s": NEW_QUESTIONS,
        "slice_s": SIZES.slices,
        "after_slice_s": SIZES.slices,
        "requests_s": SIZES.requests * (ROUNDS - 1),
        "strategy_learning_s": SPARE_DECISIONS,
        "strategy_s": SIZES.pods,
    }
    assert min(figures.decision_s) > 0


def test_pods_come_and_go_and_the_view_counts_them(
    cluster: ScaledCluster, figures: Figures
) -> None:
    """The view has been changed step by step, and equals a view that is built anew."""
    view = cluster.view.cache
    cluster.build_view()

    assert view.cluster.nodes.keys() == {f"node-{number:05}" for number in range(NODES)}
    assert not differs(
        view.cluster.usage, gather_usage(cluster.claims.values(), view.cluster.options.features)
    )
    first_claims = {f"{name}-{number}" for name, number in devices_in_use(view.cluster.nodes)}
    came = {name for _, name in cluster.claims} - first_claims
    assert came, "no pod got devices"
    assert first_claims - {name for _, name in cluster.claims}, "no pod was deleted"
    in_use = sum(map(len, view.cluster.usage.pools.values()))
    assert 0 < in_use < NODES * DEVICES


def test_a_changed_slice_is_in_the_view(cluster: ScaledCluster, figures: Figures) -> None:
    generations = {
        slice_.slice.spec.pool.generation
        for name in cluster.view.cache.cluster.nodes
        for slice_ in cluster.view.cache.cluster.node_devices(name).devices
    }
    assert generations == set(range(1, SIZES.slices + 2))


def test_a_decision_without_a_node_ends_the_run() -> None:
    cluster = ScaledCluster(2)
    cluster.decode()
    with pytest.raises(NoPlace, match="pod-0 has no node"):
        cluster.decide(two_gpus("90Gi"))


def test_goals_are_missed_beyond_them_and_each_result_has_a_name_of_its_own(
    figures: Figures,
) -> None:
    good = replace(figures, peak_mb=2_999.0, decision_s=(0.009,) * 9, new_s=(0.249,))
    names = [result.name for result in scale.results(good)]
    assert len(set(names)) == len(names)

    bad = replace(good, peak_mb=3_001.0, decision_s=(0.001,) * 9 + (0.011,), new_s=(0.251,))
    missed = _missed(scale.results(bad)) - _missed(scale.results(good))
    title = f"{NODES} nodes of 8 devices"
    assert missed == {
        f"{title}: largest memory of the process, in MB",
        f"{title}: a decision about a new request, in ms",
        f"{title}: a decision: p99 in ms",
    }


def test_a_cluster_is_measured_in_a_process_of_its_own() -> None:
    figures = scale.figures_of(20, ("--pods", "4", "--requests", "2", "--slices", "2"))
    assert (figures.nodes, len(figures.decision_s), len(figures.slice_s)) == (20, 4, 2)


@pytest.mark.parametrize(("bound", "status"), [(2.0, 0), (0.5, GOALS_MISSED)])
def test_the_suite_fails_beyond_its_goals(
    bound: float, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(bench.__main__.OWN_SUITES, "scale", lambda: iter([below("x", 1, bound)]))
    called = CliRunner().invoke(bench.__main__.main, ["--only", "scale"])
    assert called.exit_code == status, called.output


def test_it_is_not_part_of_all_suites() -> None:
    assert "scale" not in bench.__main__.SUITES


def _missed(results: Iterable[Result]) -> set[str]:
    return {result.name for result in results if not result.met}
