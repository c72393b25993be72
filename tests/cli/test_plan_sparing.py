"""`drawbridge plan`: other waves in place of those that leave no node to spare."""

from pathlib import Path
from typing import Any, Final

import pytest

from kube.manifests.dump import dump_yaml
from kube.manifests.reader import read_paths
from migration.plan.planning.build import build_plan
from migration.plan.planning.prepared import PlanQuestion
from migration.plan.search.moments import Policy
from migration.plan.search.sparing import choices_of_kinds
from process.profiles.profile_files import load_profiles
from testing.documents import namespace
from testing.migration import GPU, hami_node, workload
from testing.plan import held_objects, planned, waves
from translation.cluster.snapshot import TranslationOptions

WHOLE: Final = {GPU: "1", "nvidia.com/gpumem": "40960"}
"""A share that nothing fits beside."""


def three_namespaces() -> list[dict[str, Any]]:
    """Five nodes, and pods for four of them."""
    own = ("h-2", "h-3", "h-0", "h-3")
    return [
        *(hami_node(f"h-{number}", 4) for number in range(5)),
        *workload("all", WHOLE, own, namespace="team-0", kind="ReplicaSet"),
        *workload("one", WHOLE, ["h-4"], namespace="team-1"),
        *workload("four", WHOLE, ["h-2", "h-2", "h-4", "h-0"], namespace="team-1"),
        *workload("two", WHOLE, ["h-1", "h-1"], namespace="team-2", kind="ReplicaSet"),
        *(namespace(f"team-{number}") for number in range(3)),
    ]


def test_a_node_to_spare_is_left_by_other_waves_where_the_largest_leave_none(
    tmp_path: Path,
) -> None:
    """One of three namespaces has to move in part, with a whole one: three of five waves left no node to spare."""
    plan = planned(tmp_path, three_namespaces(), "--wave-nodes", 2)

    notes = [note for wave in plan["waves"] for note in wave["notes"]]
    assert [] == [note for note in notes if "after it no node to spare" in note]
    assert {} == held_objects(plan)
    assert 5 == sum(len(names) for names, _ in waves(plan))
    assert ["team-0", "team-1", "team-2"] == sorted(
        name for _, names in waves(plan) for name in names
    )
    assert any("leaves no node to spare" in note for note in notes)


class StoppedSearch:
    """Ends a search some questions after each node has a wave."""

    def __init__(self, questions: int) -> None:
        self.left = questions
        self._total = self._done_count = 0

    def expect(self, total: int) -> None:
        self._total = total

    def __call__(self, done_count: int) -> None:
        self._done_count = done_count

    def stops(self) -> bool:
        self.left -= self._done_count == self._total
        return self.left < 0


@pytest.mark.parametrize("questions", [100, 300, 500])
def test_the_search_for_other_waves_ends_at_once(tmp_path: Path, questions: int) -> None:
    """It went on through all choices of nodes without a further step: billions in a large cluster."""
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(three_namespaces()))
    question = PlanQuestion(
        objects=tuple(read_paths([str(file)])),
        profiles=load_profiles(),
        options=TranslationOptions(),
        namespace="default",
        version="",
    )
    progress = StoppedSearch(questions)

    build_plan(question, Policy(wave_nodes=2, keep_free=0, notes_loss=True), progress)

    assert -10 <= progress.left < 0


@pytest.mark.parametrize(
    ("choices", "kinds", "size"),
    [
        ([], [], 1),
        ([()], [], 0),
        (["aa", "ab", "bb"], ["aaa", "bb"], 2),
        (["aaabb"], ["aaa", "bb"], 5),
        ([], ["aaa", "bb"], 6),
        ([], ["aaa"] * 20, 61),
    ],
)
def test_choices_of_kinds_have_the_first_ones_of_each(
    choices: list[str], kinds: list[str], size: int
) -> None:
    """A size above the number of all took 4**20 steps to have none."""
    assert [tuple(choice) for choice in choices] == [*choices_of_kinds(kinds, size)]
