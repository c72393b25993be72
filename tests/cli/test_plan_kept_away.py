"""`drawbridge plan`: DaemonSets of legacy systems stay away from switched nodes, and the preflight sees to it."""

from pathlib import Path
from typing import Any, Final

import pytest

from kube.manifests.dump import dump_yaml
from kube.manifests.reader import read_paths
from testing.command import ROOT, drawbridge
from testing.migration import daemon_set, plugin_node
from testing.plan import changes, checks_before, document, planned

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


# --- device plugins since the plan was made -------------------------------------------------------

NAME: Final = "nvidia-device-plugin"
NVIDIA_LABEL: Final = "nvidia.com/dra-kubelet-plugin"
NVIDIA_OUT: Final = {"key": NVIDIA_LABEL, "operator": "NotIn", "values": ["true"]}
STAYS: Final = "it would stay on nodes with nvidia.com/dra-kubelet-plugin=true, beside the driver: "


def checks(tmp_path: Path, *plugins: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Return the DaemonSets of device plugins, without their namespace, to their states and messages."""
    prefix = "DaemonSet/kube-system/"
    return {
        check["object"].removeprefix(prefix): (check["state"], check["message"])
        for check in checks_before(tmp_path, [plugin_node("g0"), *plugins])
        if check["object"].startswith(prefix)
    }


def test_the_preflight_names_a_plugin_that_was_installed_anew_under_another_name(
    tmp_path: Path,
) -> None:
    """The planned one was gone, nothing said so, and the new one stayed on the drained node."""
    planned(tmp_path, [plugin_node("g0"), daemon_set(NAME)])
    anew = f"nvdp-{NAME}"

    gone = {NAME: ("note", "it is gone, and prepare.sh leaves it out")}
    stays = {anew: ("failed", f"{STAYS}plan again from a new snapshot")}
    assert gone | stays == checks(tmp_path, daemon_set(anew))
    assert gone == checks(tmp_path, daemon_set(anew, affinity=affinity(NVIDIA_OUT)))
    assert {NAME: ("failed", f"{STAYS}run prepare.sh")} == checks(tmp_path, daemon_set(NAME))


def test_the_preflight_names_a_plugin_that_was_planned_with_another_label(tmp_path: Path) -> None:
    """A plan of an older version kept a plugin from nodes with the label of another driver."""
    planned(tmp_path, [plugin_node("g0"), daemon_set(NAME)])
    plan = document(tmp_path)
    plan["plugins"][0]["labels"] = [f"{LABEL}={HAMI}"]
    (tmp_path / "plan" / "plan.yaml").write_text(dump_yaml([plan]))

    now = checks(tmp_path, daemon_set(NAME, affinity=affinity(LEFT_OUT)))

    assert {NAME: ("failed", f"{STAYS}plan again from a new snapshot")} == now
