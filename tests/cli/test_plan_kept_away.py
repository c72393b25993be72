"""`drawbridge plan`: DaemonSets of legacy systems stay away from switched nodes, and the preflight sees to it."""

from pathlib import Path
from typing import Any, Final

import pytest

from kube.manifests.dump import dump_yaml
from kube.manifests.reader import read_paths
from testing.command import ROOT, drawbridge
from testing.plan import changes, planned

HAMI: Final = "hami-core-gpu.project-hami.io"
LABEL: Final = "drawbridge.internal/dra-driver"
LEFT_OUT: Final = {"key": LABEL, "operator": "NotIn", "values": [HAMI]}
IN_POOL: Final = {"key": "pool", "operator": "In", "values": ["koord"]}
KOORDLET: Final = "DaemonSet/koordinator-system/koordlet"


def affinity(*requirements: dict[str, Any]) -> dict[str, Any]:
    terms = [{"matchExpressions": list(requirements)}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"nodeAffinity": required}


def cluster(**koordlet: Any) -> list[dict[str, Any]]:
    """The cluster of the documentation, with fields of koordlet's pods."""
    sources = read_paths([str(ROOT / "examples/migration/koordinator/before.yaml")])
    objects: list[dict[str, Any]] = [dict(source.document) for source in sources]
    pods = find_koordlet(objects)["spec"]["template"]["spec"]
    pods |= koordlet
    return objects


def find_koordlet(objects: list[dict[str, Any]]) -> dict[str, Any]:
    return next(entry for entry in objects if entry["metadata"]["name"] == "koordlet")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, affinity(LEFT_OUT)),
        (affinity(IN_POOL), affinity(IN_POOL, LEFT_OUT)),
        (
            {**affinity(IN_POOL), "podAffinity": {}},
            {**affinity(IN_POOL, LEFT_OUT), "podAffinity": {}},
        ),
    ],
)
def test_koordlet_is_kept_from_switched_nodes_beside_its_affinity(
    tmp_path: Path, before: dict[str, Any] | None, after: dict[str, Any]
) -> None:
    planned(tmp_path, cluster(**({"affinity": before} if before else {})), "--wave-nodes", 1)

    prepare = (tmp_path / "plan" / "prepare.sh").read_text()

    target = "koordinator-system/daemonset/koordlet"
    assert (target, {"affinity": (before, after)}) in changes(prepare)


@pytest.mark.parametrize(
    "requirement",
    [
        LEFT_OUT,
        {"key": LABEL, "operator": "DoesNotExist"},
        {"key": LABEL, "operator": "In", "values": ["another"]},
    ],
)
def test_koordlet_that_stays_away_already_is_left_alone(
    tmp_path: Path, requirement: dict[str, Any]
) -> None:
    plan = planned(tmp_path, cluster(affinity=affinity(requirement)), "--wave-nodes", 1)

    assert [] == plan["plugins"]
    assert "koordlet" not in (tmp_path / "plan" / "README.md").read_text()


def test_without_a_daemon_set_of_koordlet_a_note_asks_for_the_affinity(tmp_path: Path) -> None:
    objects = cluster()
    objects.remove(find_koordlet(objects))

    planned(tmp_path, objects, "--wave-nodes", 1)

    assert "no DaemonSet of koordlet was seen" in (tmp_path / "plan" / "README.md").read_text()


@pytest.mark.parametrize(
    ("now", "line"),
    [
        (affinity(IN_POOL), f"failed  {KOORDLET}"),
        (affinity(IN_POOL, LEFT_OUT), f"ok      {KOORDLET}"),
    ],
)
def test_the_preflight_fails_while_koordlet_would_stay(
    tmp_path: Path, now: dict[str, Any], line: str
) -> None:
    planned(tmp_path, cluster(affinity=affinity(IN_POOL)), "--wave-nodes", 1)
    snapshot = tmp_path / "now.yaml"
    snapshot.write_text(dump_yaml(cluster(affinity=now)))

    wave = tmp_path / "plan" / "wave-1"
    result = drawbridge("verify", "--snapshot", snapshot, "--wave", wave, "--before")

    assert line in result.stdout
    assert ("run prepare.sh" in result.stdout) is line.startswith("failed")
