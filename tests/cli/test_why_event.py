"""The event that `why` prints is the one on the page of the observer's events."""

import json
from pathlib import Path

import pytest

from kube.manifests.dump import dump_yaml
from kube.manifests.reader import read_paths
from testing.builders import gpus, pod
from testing.command import CLUSTER, EXAMPLES, ROOT, answer, drawbridge
from testing.simulated_cluster import STATE, claim, using

WAITING = EXAMPLES / "waiting"
PAGE = ROOT / "docs" / "howto" / "read-a-denial.md"
PODS = [
    read_path.document["metadata"]["name"]
    for read_path in read_paths([str(WAITING / "pods.yaml")])
    if read_path.document["kind"] == "Pod"
]


def event_of(
    pod: str, state: Path | str, stdin: str | None = None
) -> tuple[str | None, str | None]:
    """Return cause and message of a pod's event."""
    call = ("why", "pod", pod, "-n", "team", "--snapshot", state, "-o", "json")
    result = drawbridge(*call, stdin=stdin)
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    return document["cause"], document["event"]


@pytest.mark.parametrize("pod", PODS)
def test_the_page_shows_the_event_of_a_pod(pod: str) -> None:
    cause, note = event_of(pod, WAITING)
    line = f"Warning   {cause}   Pod/{pod}   {note}"

    assert line in PAGE.read_text().splitlines()


def test_the_page_has_ten_examples() -> None:
    assert len(PODS) == 10


def test_the_event_of_a_translated_pod_names_what_to_write_into_its_keys() -> None:
    large = pod(gpus(1, mem=200000))
    large["metadata"]["namespace"] = "team"
    state = [entry.document for entry in read_paths([str(CLUSTER)])]

    _, note = event_of("train", "-", stdin=dump_yaml((*state, *answer(large)["objects"])))

    assert note is not None
    assert note.startswith("Closest fit: write nvidia.com/gpumem: 81920 to fit node hami-1. ")


def test_a_pod_with_a_place_gets_no_explanation() -> None:
    state = dump_yaml((*STATE, claim("small", 1), using("lucky", "small")))

    assert event_of("lucky", "-", stdin=state) == (None, None)
