"""`drawbridge plan`: other waves in place of those that leave no node to spare."""

from pathlib import Path
from typing import Final

from testing.documents import namespace
from testing.migration import GPU, hami_node, workload
from testing.plan import held_objects, planned, waves

WHOLE: Final = {GPU: "1", "nvidia.com/gpumem": "40960"}
"""A share that nothing fits beside."""


def test_a_node_to_spare_is_left_by_other_waves_where_the_largest_leave_none(
    tmp_path: Path,
) -> None:
    """One of three namespaces has to move in part, with a whole one: three of five waves left no node to spare."""
    own = ("h-2", "h-3", "h-0", "h-3")
    objects = [
        *(hami_node(f"h-{number}", 4) for number in range(5)),
        *workload("all", WHOLE, own, namespace="team-0", kind="ReplicaSet"),
        *workload("one", WHOLE, ["h-4"], namespace="team-1"),
        *workload("four", WHOLE, ["h-2", "h-2", "h-4", "h-0"], namespace="team-1"),
        *workload("two", WHOLE, ["h-1", "h-1"], namespace="team-2", kind="ReplicaSet"),
        *(namespace(f"team-{number}") for number in range(3)),
    ]

    plan = planned(tmp_path, objects, "--wave-nodes", 2)

    notes = [note for wave in plan["waves"] for note in wave["notes"]]
    assert [] == [note for note in notes if "after it no node to spare" in note]
    assert {} == held_objects(plan)
    assert 5 == sum(len(names) for names, _ in waves(plan))
    assert ["team-0", "team-1", "team-2"] == sorted(
        name for _, names in waves(plan) for name in names
    )
    assert any("leaves no node to spare" in note for note in notes)
