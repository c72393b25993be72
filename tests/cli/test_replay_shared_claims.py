"""`drawbridge replay` of recorded pods that share a claim."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from answers.recording.lines import Entry
from kube.manifests.dump import dump_yaml
from testing.documents import Document
from testing.recordings import END, PLAIN, device_quota, gone, pod, put, replay, write
from testing.simulated_cluster import claim, holding

A = claim("a")
ALLOCATED = holding("a", "gpu-0", "node-a")


def bound(at: float, name: str, *claims: str, on: str = "node-a") -> Entry:
    return put(at, pod(name, claims=claims, on=on), "spec")


COMING: Sequence[Entry] = (
    put(5, A),
    put(10, pod("x", claims=["a"])),
    put(11, pod("y", claims=["a"])),
    put(12, ALLOCATED),
    bound(12, "x", "a"),
    bound(13, "y", "a"),
)


def in_use(document: Document, outcome: str = "") -> int:
    """Return the number of devices in use at the end, of the first strategy or of the recording."""
    result = document["recorded"]["outcome"] if outcome else document["strategies"][0]
    number: int = result["devices"]["inUse"]
    return number


@pytest.mark.parametrize("strategy", ["stock", "FirstFit"])
def test_pods_share_a_claim_as_they_did(strategy: str, tmp_path: Path) -> None:
    """They were left out."""
    document = replay(write(tmp_path / "day.json", [*COMING, END], PLAIN), strategy=strategy)

    assert document["strategies"][0]["pods"] == {"placed": 2, "failed": 0}
    assert document["recorded"]["outcome"]["pods"] == {"placed": 2, "failed": 0}
    assert document["recorded"]["best"] == 2
    assert (in_use(document), in_use(document, "recorded")) == (1, 1)


@pytest.mark.parametrize(("leaving", "left"), [(["x"], 1), (["x", "y"], 0)])
def test_a_shared_claim_is_freed_with_its_last_pod(
    leaving: list[str], left: int, tmp_path: Path
) -> None:
    leaves = [gone(100 + number, pod(name)) for number, name in enumerate(leaving)]

    document = replay(write(tmp_path / "day.json", [*COMING, *leaves, END], PLAIN))

    assert (in_use(document), in_use(document, "recorded")) == (left, left)


@pytest.mark.parametrize(("leaving", "left"), [([], 1), (["first"], 1), (["first", "y"], 0)])
def test_a_pod_shares_the_claim_of_one_that_runs_before(
    leaving: list[str], left: int, tmp_path: Path
) -> None:
    """It goes to the node of the claim's device, although another node comes first by its CPU."""
    state = (*PLAIN, ALLOCATED, pod("first", claims=["a"], on="node-a"))
    entries = [
        put(10, pod("y", claims=["a"])),
        bound(12, "y", "a"),
        *(gone(100 + number, pod(name)) for number, name in enumerate(leaving)),
        END,
    ]

    document = replay(write(tmp_path / "day.json", entries, state))

    assert document["strategies"][0]["pods"] == {"placed": 1, "failed": 0}
    assert document["recorded"]["best"] == 1
    assert (in_use(document), in_use(document, "recorded")) == (left, left)


@pytest.mark.parametrize("begin", ["8", "12.5", "50"])
def test_a_recording_from_a_later_moment_on_has_its_shared_claims(
    begin: str, tmp_path: Path
) -> None:
    third = (put(60, pod("z", claims=["a"])), bound(62, "z", "a"))
    leaves = (gone(100 + number, pod(name)) for number, name in enumerate("xyz"))
    entries = [*COMING, *third, *leaves, END]
    path = write(tmp_path / "day.json", entries, PLAIN)

    document = replay(path, "--migrated-at", begin)

    assert in_use(document) == 0
    assert document["strategies"][0]["pods"]["failed"] == 0


def test_a_shared_claim_is_charged_once(tmp_path: Path) -> None:
    quota = tmp_path / "quota.yaml"
    quota.write_text(dump_yaml([device_quota({"devices": {}, "max": "1"})]))
    state = (*PLAIN, ALLOCATED, pod("first", claims=["a"], on="node-a"))
    entries = [put(10, pod("y", claims=["a"])), bound(12, "y", "a"), END]

    document = replay(write(tmp_path / "day.json", entries, state), "--quota", quota)

    assert document["strategies"][0]["pods"] == {"placed": 1, "failed": 0}
