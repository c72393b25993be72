"""`drawbridge replay`: pods and clusters that cannot be right are told, not counted as failures."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import Result

from kube.manifests.dump import dump_yaml
from testing.command import EXAMPLES, drawbridge
from testing.documents import Document, api_object
from testing.recordings import STATE, gpu
from testing.simulated_cluster import device_class, holding, slice_of


def replay(
    folder: Path, *options: object, state: Sequence[Document] = STATE, pods: str = "name\na\n"
) -> Result:
    snapshot = folder / "cluster.yaml"
    snapshot.write_text(dump_yaml(state) if state else "")
    call = ("replay", "--snapshot", snapshot, "--strategy", "stock")
    return drawbridge(*call, *(options or ("--pods", "-")), stdin=pods)


def failed(result: Result) -> list[str]:
    assert (result.exit_code, result.stdout) == (2, "")
    return result.stderr.splitlines()


def notes(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    return [line for line in result.stderr.splitlines() if line.startswith("note: ")]


# --- the cluster ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "state", [(), ({"apiVersion": "v1", "kind": "List", "items": []},), (device_class(),)]
)
def test_a_cluster_without_nodes_is_a_wrong_call(state: Sequence[Document], tmp_path: Path) -> None:
    lines = failed(replay(tmp_path, state=state))

    assert "The given state of the cluster has neither nodes nor ResourceSlices" in lines[-1]


def test_nodes_without_allocatable_amounts_are_named(tmp_path: Path) -> None:
    state = (*STATE, api_object("Node", "bare"))

    (note,) = notes(replay(tmp_path, state=state))

    assert note.startswith("note: 1 of 3 nodes without status.allocatable: CPU and memory have no")
    assert note.endswith(": bare")


def test_a_cluster_without_node_objects_is_told(tmp_path: Path) -> None:
    state = (device_class(), slice_of("node-a", gpu("gpu-0")))

    (note,) = notes(replay(tmp_path, state=state))

    assert note == (
        "note: no Node objects are given; the nodes that ResourceSlices name have no labels, and CPU and memory have "
        "no limits there"
    )


def test_a_whole_cluster_has_no_notes(tmp_path: Path) -> None:
    pods = "name,class,capacity\na,gpu,milli=500\n"

    assert notes(replay(tmp_path, pods=pods)) == []


# --- the pods ---------------------------------------------------------------------------------------


def test_a_csv_without_pods_is_a_wrong_call(tmp_path: Path) -> None:
    assert "Error: standard input has a header and no pods." in failed(
        replay(tmp_path, pods="name,cpu\n")
    )


def test_a_class_that_the_cluster_lacks_is_a_fault_of_its_line(tmp_path: Path) -> None:
    pods = "name,class\na,gpu\nb,gup\nc,gup\nd,other\n"

    assert failed(replay(tmp_path, pods=pods)) == [
        'standard input: line 3, class: the cluster has no DeviceClass "gup"; did you mean "gpu"? (1 more line)',
        'standard input: line 5, class: the cluster has no DeviceClass "other"; known names: "gpu"',
    ]


def test_a_capacity_that_no_device_has_is_a_fault_of_its_line(tmp_path: Path) -> None:
    pods = "name,class,capacity\na,gpu,foo=5\nb,gpu,mili=5\nc,gpu,gpu.example.com/milli=5\n"

    assert failed(replay(tmp_path, pods=pods)) == [
        'standard input: line 2, capacity: no device has the capacity "foo"; known names: "milli"',
        'standard input: line 3, capacity: no device has the capacity "mili"; did you mean "milli"?',
    ]


def test_an_amount_that_no_device_has_is_told_with_its_lines(tmp_path: Path) -> None:
    lines = "".join(f"p{number},gpu,milli=2000\n" for number in range(5))

    result = replay(tmp_path, pods=f"name,class,capacity\none,gpu,milli=1500\n{lines}")

    assert notes(result) == [
        "note: no device has milli 1500, the largest has 1k: line 2 requests it, and fails",
        "note: no device has milli 2k, the largest has 1k: lines 3, 4, 5 and 2 more request it, and fail",
    ]


def test_many_amounts_that_no_device_has_are_counted(tmp_path: Path) -> None:
    lines = "".join(f"p{number},gpu,milli={2000 + number}\n" for number in range(50))

    result = replay(tmp_path, pods=f"name,class,capacity\n{lines}")

    assert len(notes(result)) == 11
    assert notes(result)[-1] == (
        "note: 40 more amounts of capacities that no device has are requested"
    )


def test_a_class_that_pods_in_the_cluster_name_in_vain_is_told(tmp_path: Path) -> None:
    running = api_object(
        "Pod",
        "train",
        "team",
        spec={
            "nodeName": "node-a",
            "containers": [{"name": "main", "image": "a"}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": "train"}],
        },
        status={"phase": "Running"},
    )
    state = [*STATE[1:], device_class("gpus"), running, holding("train", "gpu-0", "node-a")]

    result = replay(tmp_path, "--pods", "from-snapshot", "-o", "json", state=state)

    assert notes(result) == [
        'note: the cluster has no DeviceClass "gpu", requested by 6 pods such as train-0; did you mean "gpus"?'
    ]
    assert json.loads(result.stdout)["strategies"][0]["errors"]["invalidClaim"].startswith(
        "Pod/team/train-0: claim team/train-0-0, request gpu: could not retrieve device class gpu"
    )


def test_a_selector_that_fails_says_how(tmp_path: Path) -> None:
    pods = 'name,class,selector\na,gpu,device.attributes["gpu.example.com"].modell == "x"\n'

    result = replay(tmp_path, pods=pods)

    assert "stock, seed 0: attemptFailed 1\n  attemptFailed: Pod/default/a: claim default/a" in (
        result.stdout
    )
    assert "no such key" in result.stdout
    page = replay(tmp_path, "--pods", "-", "-o", "html", pods=pods).stdout
    assert "attemptFailed: Pod/default/a: claim default/a" in page


def test_words_of_an_error_are_bounded(tmp_path: Path) -> None:
    name = "x" * 5000
    pods = f'name,class,selector\na,gpu,device.attributes["gpu.example.com"].{name} == "x"\n'

    result = replay(tmp_path, "--pods", "-", "-o", "json", pods=pods)

    (entry,) = json.loads(result.stdout)["strategies"]
    assert len(entry["errors"]["attemptFailed"]) <= 500


def test_a_csv_may_be_compressed(tmp_path: Path) -> None:
    file = tmp_path / "pods.csv.gz"
    file.write_bytes(gzip.compress(b"name\na\nb\n"))

    result = replay(tmp_path, "--pods", file)

    assert "2 pods in the order file" in result.stdout


def test_a_csv_that_is_huge_once_it_is_unpacked_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kube.manifests.compressed.MAX_BYTES", 2**20)
    monkeypatch.setattr("cli.verbs.replay.arriving.MAX_BYTES", 2**20)
    file = tmp_path / "pods.csv.gz"
    file.write_bytes(gzip.compress(b"name\n" + b"\n" * 2**21))

    assert failed(replay(tmp_path, "--pods", file)) == [f"{file}: larger than 1 MiB"]


def test_a_cluster_of_device_plugins_is_told_what_serves_it(tmp_path: Path) -> None:
    lines = failed(replay(tmp_path, "--pods", "from-snapshot"))

    assert "pods with devices of device plugins are not drawn" in lines[-1]


# --- the question, beside the answer -----------------------------------------------------------------


def test_the_answer_says_what_it_is_the_answer_to(tmp_path: Path) -> None:
    cluster, pods = tmp_path / "cluster.yaml", tmp_path / "pods.csv"
    pods.write_text("name\na\n")
    options = ("--pods", pods, "--add-nodes", "2=node-a", "--seeds", "2")
    words = f"The pods of {pods} on the cluster of {cluster}, with 2 more nodes like node-a"

    assert replay(tmp_path, *options).stdout.startswith(f"{words}\n1 pod in the order file")
    assert words in replay(tmp_path, *options, "-o", "html").stdout
    assert json.loads(replay(tmp_path, *options, "-o", "json").stdout)["input"] == {
        "snapshots": [str(cluster)],
        "pods": str(pods),
        "arriving": 1,
        "order": "file",
        "seeds": 2,
        "addedNodes": [{"count": 2, "like": "node-a"}],
    }


def test_the_question_of_drawn_pods_has_the_demand(tmp_path: Path) -> None:
    running = api_object(
        "Pod",
        "train",
        "team",
        spec={
            "nodeName": "node-a",
            "containers": [{"name": "main", "image": "a"}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": "train"}],
        },
        status={"phase": "Running"},
    )
    state = [*STATE, running, holding("train", "gpu-0", "node-a")]
    options = ("--pods", "from-snapshot", "--demand", "150%")

    result = replay(tmp_path, *options, state=state)

    assert result.stdout.startswith("Pods like those that run, drawn for 150 % of the devices, on")
    document = json.loads(replay(tmp_path, *options, "-o", "json", state=state).stdout)
    assert (document["input"]["pods"], document["input"]["demand"]) == ("from-snapshot", 150)


def test_a_replay_of_a_recording_names_it() -> None:
    recording = EXAMPLES / "replay" / "recording.jsonl"

    result = drawbridge("replay", "--snapshot", recording, "--strategy", "stock")

    assert result.stdout.startswith(f"The pods of the recording {recording}\n8 pods in the order")


def test_the_page_has_whole_sentences_and_figures_of_the_table(tmp_path: Path) -> None:
    pods = "name,class,capacity\n" + "".join(f"p{number},gpu,milli=333\n" for number in range(7))

    page = replay(tmp_path, "--pods", "-", "-o", "html", pods=pods).stdout

    assert "topology spread, preemption, autoscaling." in page
    # The table of strategies, and the last column of the curve's table.
    assert page.count("58.27 %") >= 2
    assert [f">{figure}</text>" in page for figure in ("20 %", "40 %", "80 %")] == [True] * 3
