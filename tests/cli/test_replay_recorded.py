"""`drawbridge replay` of a recording: arrivals and departures, comparisons, and faults in the file."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from allocator.replay.replay import STRATEGIES
from answers.recording.lines import (
    Entry,
    Gap,
    Header,
    encode_entry,
    encode_header,
)
from testing.command import EXAMPLES, drawbridge
from testing.recordings import END, PLAIN, STATE, gone, node, pod, put, replay, write
from testing.simulated_cluster import DRIVER, claim, holding, pinned, slice_of


def coming(at: float, name: str, cpu: str, node_name: str) -> list[Entry]:
    """Return the changes of a pod that comes, and is bound two seconds later."""
    return [
        put(at, pod(name, cpu)),
        put(at + 2, pod(name, cpu, on=node_name), "spec"),
    ]


PACKED = pod("packed", "6", on="node-a")


@pytest.mark.parametrize("name", ["day.json", "day.json.gz"])
def test_pods_come_and_leave_as_they_did(name: str, tmp_path: Path) -> None:
    path = write(
        tmp_path / name,
        [
            *coming(10, "a", "6", "node-a"),
            *coming(20, "b", "6", "node-b"),
            put(30, pod("c", "6")),
            gone(112, pod("a")),
            put(114, pod("c", "6", on="node-a"), "spec"),
            END,
        ],
    )

    document = replay(path)

    (stock,) = document["strategies"]
    assert stock["pods"] == {"placed": 3, "failed": 0}
    # It ran for 100 seconds, and comes to its node two seconds earlier than in the cluster.
    assert (stock["waitingSeconds"]["p50"], stock["waitingSeconds"]["p99"]) == (0.0, 80.0)
    recorded = document["recorded"]
    assert recorded["outcome"]["pods"] == {"placed": 3, "failed": 0}
    waits = {"p50": 2.0, "p99": 84.0}
    assert recorded["outcome"]["waitingSeconds"] == {**waits, "ofAll": waits}
    assert (recorded["bindings"], recorded["best"], recorded["ties"]) == (3, 3, 1)
    assert recorded["percent"] == 100.0


def test_pods_of_the_first_state_run_on_until_they_leave(tmp_path: Path) -> None:
    before = pod("before", "6", on="node-a")
    path = write(
        tmp_path / "day.json",
        [put(10, pod("a", "6", nodeSelector={"disk": "ssd"})), gone(50, before), END],
        state=[*STATE, before],
    )

    document = replay(path)

    (stock,) = document["strategies"]
    assert stock["pods"] == {"placed": 1, "failed": 0}
    assert stock["waitingSeconds"]["p99"] == 40.0
    # In the cluster it was never placed.
    assert document["recorded"]["outcome"]["pods"] == {"placed": 0, "failed": 1}


def test_a_node_that_comes_later_takes_what_waits_and_one_that_goes_takes_nothing(
    tmp_path: Path,
) -> None:
    path = write(
        tmp_path / "day.json",
        [
            put(10, pod("large", "30")),
            put(60, node("node-c", cpu=32)),
            put(62, pod("large", "30", on="node-c"), "spec"),
            gone(90, pod("large")),
            gone(100, node("node-c")),
            put(110, pod("late", "30")),
            END,
        ],
    )

    document = replay(path)

    (stock,) = document["strategies"]
    assert stock["pods"] == {"placed": 1, "failed": 1}
    assert stock["failedBy"] == {"cpu": 1}
    assert stock["waitingSeconds"]["p99"] == 50.0
    assert document["recorded"]["best"] == document["recorded"]["bindings"] == 1


def test_who_was_deleted_while_it_waited_waits_no_longer(tmp_path: Path) -> None:
    before = pod("before", "6", on="node-a")
    waiting = pod("waiting", "6", nodeSelector={"disk": "ssd"})
    path = write(
        tmp_path / "day.json",
        [put(10, waiting), gone(20, waiting), gone(50, before), END],
        state=[*STATE, before],
    )

    (stock,) = replay(path)["strategies"]

    assert stock["pods"] == {"placed": 0, "failed": 1}


def test_more_nodes_would_have_helped(tmp_path: Path) -> None:
    path = write(
        tmp_path / "day.json",
        [
            *coming(10, "a", "6", "node-a"),
            *coming(20, "b", "6", "node-b"),
            put(30, pod("c", "6")),
            END,
        ],
    )

    (as_it_was,) = replay(path)["strategies"]
    document = replay(path, "--add-nodes", "1=node-b")

    assert as_it_was["pods"] == {"placed": 2, "failed": 1}
    assert document["strategies"][0]["pods"] == {"placed": 3, "failed": 0}
    assert document["recorded"]["outcome"]["pods"] == {"placed": 2, "failed": 1}


def test_devices_are_as_they_were_allocated(tmp_path: Path) -> None:
    """Two claims on one node leave nothing for a third, so the recorded node has no devices."""
    own = [
        {**claim(name, 2), "metadata": {**claim(name)["metadata"], "uid": name}} for name in "abc"
    ]
    changes: list[Entry] = []
    for at, document, on in zip((10, 20, 30), own, ("node-a", "node-b", "node-b"), strict=True):
        name = document["metadata"]["name"]
        results = [
            {"request": "gpu", "driver": DRIVER, "pool": on, "device": device}
            for device in ("gpu-0", "gpu-1")
        ]
        allocated = {"allocation": {"devices": {"results": results}, **pinned(on)}}
        changes += [
            put(at, document),
            put(at, pod(f"pod-{name}", claims=[name])),
            put(at + 2, pod(f"pod-{name}", claims=[name], on=on), "spec"),
            put(at + 2, {**document, "status": allocated}, "status"),
        ]
    path = write(tmp_path / "day.json", [*changes, END], state=PLAIN)

    document = replay(path)

    recorded = document["recorded"]
    assert (recorded["bindings"], recorded["best"]) == (3, 2)
    assert recorded["otherwise"] == {"noDevices": 1}
    (stock,) = document["strategies"]
    assert stock["pods"] == {"placed": 2, "failed": 1}
    assert stock["failedBy"] == {"noDevices": 1}


@pytest.mark.parametrize(
    ("cause", "binding"),
    [
        (None, coming(10, "a", "1", "node-b")),
        ("otherScores", coming(10, "a", "1", "node-a")),
        ("cpu", coming(10, "a", "4", "node-a")),
        ("unknownNode", coming(10, "a", "1", "node-x")),
        ("ineligibleNode", [put(10, pod("a", nodeSelector={"disk": "ssd"})), put(12, pod("a", on="node-b", nodeSelector={"disk": "ssd"}), "spec")]),
        ("topologySpread", [put(10, pod("a", topologySpreadConstraints=[{"maxSkew": 1}])), put(12, pod("a", on="node-a", topologySpreadConstraints=[{"maxSkew": 1}]), "spec")]),
        ("podAffinity", [put(10, pod("a", affinity={"podAffinity": {"a": 1}})), put(12, pod("a", on="node-a", affinity={"podAffinity": {"a": 1}}), "spec")]),
        ("preferNoScheduleTaints", [put(5, {**node("node-b"), "spec": {"taints": [{"key": "a", "effect": "PreferNoSchedule"}]}}), *coming(10, "a", "1", "node-a")]),
        ("sameMoment", [*coming(10, "a", "1", "node-a"), put(12.5, pod("b", nodeSelector={"disk": "no"})), put(12.5, pod("b", on="node-b", schedulerName="x"), "spec")]),
        ("notDated", [*coming(10, "a", "1", "node-a"), Gap(at=13, since=9, resource="pods")]),
    ],
)  # fmt: skip
def test_a_pod_that_is_not_on_the_best_node_has_a_cause(
    cause: str | None, binding: Sequence[Entry], tmp_path: Path
) -> None:
    path = write(tmp_path / "day.json", [*binding, END], state=[*PLAIN, PACKED])

    recorded = replay(path)["recorded"]

    assert recorded["otherwise"] == ({} if cause is None else {cause: 1})
    assert recorded["bindings"] == 1
    assert recorded["percent"] == (100.0 if cause is None else 0.0)


def test_pods_of_other_schedulers_and_of_kubelets_are_not_compared(tmp_path: Path) -> None:
    mirror = pod("mirror", on="node-a")
    mirror["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    own = pod("own", schedulerName="drawbridge")
    bound = pod("own", schedulerName="drawbridge", on="node-a")
    path = write(tmp_path / "day.json", [put(5, mirror), put(10, own), put(12, bound, "spec"), END])

    document = replay(path)

    assert document["recorded"]["bindings"] == 0
    assert document["recorded"]["otherSchedulers"] == 2
    assert document["strategies"][0]["pods"] == {"placed": 2, "failed": 0}


def test_the_name_of_a_pod_may_come_again(tmp_path: Path) -> None:
    again = pod("a", "6")
    again["metadata"] = {**again["metadata"], "uid": "another"}
    path = write(
        tmp_path / "day.json",
        [*coming(10, "a", "6", "node-a"), put(40, again), put(42, {**again, "spec": pod("a", "6", on="node-b")["spec"]}, "spec"), END],
    )  # fmt: skip

    document = replay(path)

    assert document["strategies"][0]["pods"] == {"placed": 2, "failed": 0}
    assert document["recorded"]["outcome"]["pods"] == {"placed": 2, "failed": 0}


def test_pods_without_their_claims_are_left_out_with_one_note(tmp_path: Path) -> None:
    path = write(
        tmp_path / "day.json",
        [put(10, pod("x", claims=["a"])), put(11, pod("y", claims=["b"])), *coming(20, "z", "1", "node-a"), END],
        unreadable=("resourceclaims",),
    )  # fmt: skip

    outcome = drawbridge("replay", "--snapshot", path, "--strategy", "stock")

    notes = [line for line in outcome.stderr.splitlines() if line.startswith("note: ")]
    assert notes == [
        "note: resourceclaims could not be listed, and count as if there were none",
        "note: left out: 2 pods: its claim, or the template of it, is not in the recording",
    ]


def test_the_text_has_what_happened_beside_the_strategies(tmp_path: Path) -> None:
    path = write(
        tmp_path / "day.json", [*coming(10, "a", "1", "node-a"), END], state=[*PLAIN, PACKED]
    )

    outcome = drawbridge("replay", "--snapshot", path, "--strategy", "stock,BestFit")

    rows = [line.split()[:4] for line in outcome.stdout.splitlines()[4:7]]
    assert rows == [
        ["recorded", "-", "1", "0"],
        ["stock", "0", "1", "0"],
        ["BestFit", "0", "1", "0"],
    ]
    assert (
        "Recorded beside stock: 0.00 % of 1 pod that kube-scheduler bound are on a node with the best score of "
        "that moment (0 ties)\n  the others, by cause: otherScores 1\n" in outcome.stdout
    )
    page = drawbridge("replay", "--snapshot", path, "--strategy", "stock", "-o", "html")
    assert "Recorded beside stock: 0.00 %" in page.stdout


# --- the file -------------------------------------------------------------------------------------


def test_a_file_that_is_cut_off_is_replayed_up_to_there(tmp_path: Path) -> None:
    path = write(
        tmp_path / "day.json", [*coming(10, "a", "6", "node-a"), *coming(20, "b", "6", "node-b")]
    )
    text = path.read_bytes()
    path.write_bytes(text[:-30])
    line = len(text.splitlines())

    outcome = drawbridge("replay", "--snapshot", path, "--strategy", "stock")

    assert outcome.exit_code == 0
    assert f"note: {path}:{line}: the file ends within a line" in outcome.stderr
    assert "note: the recorder was killed; the recording ends in second 20" in outcome.stderr


def test_an_empty_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "day.jsonl"
    file.write_bytes(b"")

    result = drawbridge("replay", "--snapshot", file)

    assert (result.exit_code, result.stdout) == (2, "")
    assert f"Error: {file}: is empty; expected a recording\n" in result.stderr


def test_a_recording_of_another_version_is_named(tmp_path: Path) -> None:
    file = tmp_path / "day.jsonl"
    file.write_bytes(b'{"apiVersion":"cli.drawbridge.internal/v9","kind":"Recording"}\n{"at":0}\n')

    for verb in ("replay", "top"):
        result = drawbridge(verb, "--snapshot", file)

        assert result.exit_code == 2
        assert f"Error: {file}:1: not a recording: " in result.stderr
        assert "cli.drawbridge.internal/v9" in result.stderr


def test_a_gap_is_noted(tmp_path: Path) -> None:
    gap = Gap(at=60, since=30.5, resource="pods")
    path = write(tmp_path / "day.json", [*coming(10, "a", "6", "node-a"), gap, END])

    outcome = drawbridge("replay", "--snapshot", path, "--strategy", "stock")

    assert "note: pods were not followed from second 30.5 to 60" in outcome.stderr


def test_a_file_without_its_first_state_is_no_recording_yet(tmp_path: Path) -> None:
    path = tmp_path / "day.json"
    path.write_bytes(encode_header(Header()) + encode_entry(put(0, node("node-a"))))

    outcome = drawbridge("replay", "--snapshot", path)

    assert (outcome.exit_code, outcome.stdout) == (2, "")
    assert f"{path}: the recording ends before its first state is complete" in outcome.stderr


@pytest.mark.parametrize(
    ("want", "line"),
    [
        (":6: not a line of a recording: ", b"nonsense\n"),
        (":6: Pod/team/a: Expected `str`, got `int` - at `$.spec.nodeName`", encode_entry(put(5, pod("a", on=5)))),  # type: ignore[arg-type]
        (":6: Node//\\x1b: Expected `object`, got `int` - at `$.spec`", encode_entry(put(5, {**node("\x1b"), "spec": 7}))),
    ],
)  # fmt: skip
def test_a_line_that_no_recorder_writes_is_named(want: str, line: bytes, tmp_path: Path) -> None:
    path = write(tmp_path / "day.json", [], state=PLAIN[:3])
    path.write_bytes(path.read_bytes() + line)

    for command in ("replay", "inventory"):
        outcome = drawbridge(command, "--snapshot", path)

        assert (outcome.exit_code, outcome.stdout) == (2, "")
        assert f"{path}{want}" in outcome.stderr
        assert "\x1b" not in outcome.stderr


def test_other_commands_read_the_last_state(tmp_path: Path) -> None:
    path = write(
        tmp_path / "day.json.gz",
        [
            put(5, node("node-c")),
            put(5, slice_of("node-c", {"name": "gpu-0"})),
            gone(6, slice_of("node-b")),
            END,
        ],
        state=PLAIN,
    )

    outcome = drawbridge("inventory", "--snapshot", path, "-o", "json")

    devices = [entry["devices"] for entry in json.loads(outcome.stdout)["classes"]]
    assert devices == [3]


@pytest.mark.parametrize("call", [("assess", "--snapshot"), ("check", "-f")])
def test_commands_about_workloads_want_a_snapshot(call: tuple[str, str], tmp_path: Path) -> None:
    path = write(tmp_path / "day.json", [END])

    outcome = drawbridge(*call, path)

    assert (outcome.exit_code, outcome.stdout) == (2, "")
    assert f"{path}:1: a recording of drawbridge record: " in outcome.stderr


def test_other_pods_arrive_at_the_last_state(tmp_path: Path) -> None:
    path = write(tmp_path / "day.json", [put(5, node("node-c", cpu=32)), END])
    pods = tmp_path / "pods.csv"
    pods.write_text("name,cpu\na,30\n")

    document = replay(path, "--pods", pods)

    assert document["strategies"][0]["pods"] == {"placed": 1, "failed": 0}
    assert "recorded" not in document


@pytest.mark.parametrize(
    ("want", "options"),
    [
        ("leave out --order", ("--order", "file")),
        ("--demand needs --pods from-snapshot", ("--demand", "130%")),
        ("--pods recorded needs one --snapshot", ("--pods", "recorded", "-f", "-")),
    ],
)
def test_options_that_contradict_a_recording_are_named(
    want: str, options: Sequence[str], tmp_path: Path
) -> None:
    path = write(tmp_path / "day.json", [*coming(10, "a", "6", "node-a"), END])

    outcome = drawbridge("replay", "--snapshot", path, *options, stdin="")

    assert (outcome.exit_code, outcome.stdout) == (2, "")
    assert want in outcome.stderr


def test_pods_of_a_snapshot_that_is_no_recording_are_not_recorded() -> None:
    outcome = drawbridge(
        "replay", "--snapshot", EXAMPLES / "replay/cluster.yaml", "--pods", "recorded"
    )

    assert outcome.exit_code == 2
    assert "--pods recorded needs one --snapshot" in outcome.stderr


def test_a_recording_in_which_nobody_came_has_no_replay(tmp_path: Path) -> None:
    outcome = drawbridge("replay", "--snapshot", write(tmp_path / "day.json", [END]))

    assert outcome.exit_code == 2
    assert "No pod came while the cluster was recorded." in outcome.stderr


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_follows_nodes_and_devices_that_come_and_go(
    strategy: str, tmp_path: Path
) -> None:
    asking = [
        put(at, document)
        for at, name in ((10, "early"), (70, "late"))
        for document in (claim(name, 4), pod(f"pod-{name}", claims=[name]))
    ]
    four = slice_of("node-c", *({"name": f"gpu-{number}"} for number in range(4)))
    path = write(
        tmp_path / "day.json",
        [
            *asking[:2],
            *coming(20, "plain", "1", "node-a"),
            put(40, node("node-c")),
            put(40.5, four),
            put(60, node("node-c", cpu=4)),
            *asking[2:],
            gone(80, pod("plain")),
            gone(90, four),
            gone(91, node("node-c")),
            *coming(100, "last", "1", "node-b"),
            END,
        ],
        state=PLAIN,
    )

    document = replay(path, strategy=strategy)

    (result,) = document["strategies"]
    assert result["pods"] == {"placed": 3, "failed": 1}
    assert result["waitingSeconds"]["p99"] == 30.0
    assert result["devices"]["total"] == 4
    assert document["recorded"]["outcome"]["pods"] == {"placed": 2, "failed": 2}


def test_pods_that_use_a_claim_one_after_the_other_do_not_share_it(tmp_path: Path) -> None:
    """Each binding has the devices of its time, and freed devices are free."""
    changes: list[Entry] = []
    for number, (at, on) in enumerate(((10, "node-a"), (50, "node-b"))):
        name = f"pod-{number}"
        changes += [
            put(at, claim("own", 2)),
            put(at, pod(name, claims=["own"])),
            put(at + 1, {**holding("own", "gpu-0", on), "spec": claim("own", 2)["spec"]}),
            put(at + 1, pod(name, claims=["own"], on=on), "spec"),
            gone(at + 20, pod(name)),
            put(at + 21, {**claim("own", 2), "status": {}}),
        ]
    path = write(tmp_path / "day.json", [*changes, END], state=PLAIN)

    document = replay(path)

    assert document["strategies"][0]["pods"] == {"placed": 2, "failed": 0}
    assert document["recorded"]["outcome"]["pods"] == {"placed": 2, "failed": 0}
    assert document["recorded"]["outcome"]["devices"] == {"total": 4, "inUse": 0, "wholeIdle": 4}
    assert document["recorded"]["best"] == 2
