"""The quotas that a plan has a person lower, for a namespace that moves only in part."""

from pathlib import Path
from typing import Final

import pytest

from testing.documents import namespace, resource_quota
from testing.migration import GPU, device_quota, hami_node, workload
from testing.plan import Objects, planned, script

_ONE: Final = {GPU: "1", "nvidia.com/gpumem": "40000"}
"""A share that nothing fits beside."""


def in_parts() -> Objects:
    """A namespace with a quota that moves in parts, and with a last one that no wave has."""
    place = {"kubernetes.io/hostname": "hami-9"}
    closed = {**hami_node("hami-9", 1), "spec": {"unschedulable": True}}
    return [
        *(hami_node(f"hami-{number}", 1) for number in range(4)),
        *(closed, namespace("team", {"kubernetes.io/metadata.name": "team"})),
        resource_quota({f"requests.{GPU}": "8"}),
        *(entry for n in (1, 2, 3) for entry in workload(f"web-{n}", _ONE, [f"hami-{n}"])),
        *workload("left", _ONE, ["hami-9"], nodeSelector=place),
    ]


def test_another_limit_in_the_place_of_a_line_is_noted_with_the_first_part(tmp_path: Path) -> None:
    """The first part removes the line. The note was one of the wave that opts in the rest, and there is none."""
    quota = device_quota({"name": GPU}, budget="PerNamespace")
    quota["spec"]["limits"][0]["max"] = "12"

    plan = planned(tmp_path, [*in_parts(), quota], "--wave-nodes", 1)

    first, *later = (wave["wave"] for wave in plan["waves"] if wave["partialNamespaces"])
    assert later
    assert [first] == [
        wave["wave"]
        for wave in plan["waves"]
        if "in its place 12, which is more" in str(wave["notes"])
    ]


def test_the_line_of_a_namespace_that_moves_only_in_part_is_lowered_once_no_more_of_it_moves(
    tmp_path: Path,
) -> None:
    """A namespace with a last part that no wave has was told nothing, with 167 devices for 100."""
    plan = planned(tmp_path, in_parts(), "--wave-nodes", 1)

    parts = [bool(wave["partialNamespaces"]) for wave in plan["waves"]]
    assert [] == [name for wave in plan["waves"] for name in wave["namespaces"]]
    first, last = (1 + parts.index(True), len(parts) - parts[::-1].index(True))
    assert first < last
    noted = [
        (wave["wave"], note)
        for wave in plan["waves"]
        for note in wave["notes"]
        if "ResourceQuota/team/gpus gets lines for claims" in note
    ]
    assert [first] == [wave for wave, _ in noted]
    assert f"After wave {last} lower requests.{GPU}" in noted[0][1]
    assert [last] == [
        wave["wave"]
        for wave in plan["waves"]
        if "echo 'by hand: ResourceQuota/team/gpus" in script(tmp_path, "verify", wave["wave"])
    ]


@pytest.mark.parametrize(
    ("labels", "options", "place"),
    [
        ({}, [], "by hand"),
        (
            {"kustomize.toolkit.fluxcd.io/name": "apps"},
            ["--format", "kustomize"],
            "in the repository",
        ),
    ],
    ids=["kubectl", "Flux"],
)
def test_a_line_of_a_repository_is_lowered_there(
    tmp_path: Path, labels: dict[str, str], options: list[str], place: str
) -> None:
    """The note said by hand, and Flux raised the line again."""
    cluster = in_parts()
    for entry in cluster:
        if entry["kind"] in {"Namespace", "ResourceQuota"}:
            entry["metadata"].setdefault("labels", {}).update(labels)

    plan = planned(tmp_path, cluster, "--wave-nodes", 1, *options)

    notes = [note for wave in plan["waves"] for note in wave["notes"] if "gets lines for" in note]
    assert [True] == [f"lower requests.{GPU} {place} to what" in note for note in notes]
