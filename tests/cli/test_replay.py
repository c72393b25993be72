"""`drawbridge replay`: the document, the order of pods, `--check-below`, and faults in a CSV."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from allocator.replay.replay import STRATEGIES
from cli.verbs.replay.page import MAX_CELLS
from findings.text import printable
from kube.manifests.dump import dump_yaml
from testing import documents
from testing.command import EXAMPLES, drawbridge
from testing.documents import Document, api_object
from testing.html_pages import HOSTILE, Outline
from testing.recordings import STATE, gpu, node
from testing.simulated_cluster import DRIVER, claim, device_class, holding, slice_of

EXAMPLE = EXAMPLES / "replay"
HIDDEN = "\x1b[2J\x07\x7f\x9b31m\u202e\u2066\u200b\u2028\U000e0041##vso[a]"


def replay(text: str, *options: object, state: Sequence[Document] = STATE, folder: Path) -> Result:
    snapshot = folder / "cluster.yaml"
    snapshot.write_text(dump_yaml(state))
    return drawbridge("replay", "--snapshot", snapshot, "--pods", "-", *options, stdin=text)


def results(
    text: str,
    *options: object,
    state: Sequence[Document] = STATE,
    folder: Path,
    exits: int = 0,
    strategy: str = "stock",
) -> list[Document]:
    outcome = replay(
        text, "--strategy", strategy, "-o", "json", *options, state=state, folder=folder
    )
    assert outcome.exit_code == exits, outcome.output
    document: Document = json.loads(outcome.stdout)
    assert {*document} - {"demand"} == {"apiVersion", "kind", "strategies", "input"}
    assert document["apiVersion"] == "cli.drawbridge.internal/v1"
    assert document["kind"] == "ReplayReport"
    strategies: list[Document] = document["strategies"]
    return strategies


def rows(*lines: str, columns: str = "name,cpu,class,capacity") -> str:
    return "".join(f"{line}\n" for line in (columns, *lines))


def test_the_document(tmp_path: Path) -> None:
    text = rows("a,1,gpu,milli=500", "b,1,gpu,milli=1k", "c,20,,", "d,1,gpu,milli=2k")
    (result,) = results(text, folder=tmp_path)

    assert result.pop("cpuSeconds") >= 0
    assert result == {
        "name": "stock",
        "seed": 0,
        "pods": {"placed": 2, "failed": 2},
        "failedBy": {"cpu": 1, "noDevices": 1},
        "failedShapes": [
            {"devices": "no devices", "pods": 1, "failed": 1, "failedBy": {"cpu": 1}},
            {
                "devices": "1 gpu with milli 2k",
                "pods": 1,
                "failed": 1,
                "failedBy": {"noDevices": 1},
            },
        ],
        "capacities": [{"driver": DRIVER, "name": "milli", "total": 4000, "allocated": 1500}],
        "devices": {"total": 4, "inUse": 2, "wholeIdle": 2},
        "idleBecause": {"tooFewDevices": 2},
        "secondAttempts": 0,
        "waitingSeconds": {"p50": 0, "p99": 0},
    }


def test_all_strategies_by_default(tmp_path: Path) -> None:
    outcome = replay(rows("a,1,gpu,milli=500"), "-o", "json", folder=tmp_path)

    assert [entry["name"] for entry in json.loads(outcome.stdout)["strategies"]] == [*STRATEGIES]


def test_strategies_and_seeds_in_the_order_given(tmp_path: Path) -> None:
    entries = results(
        rows("a,1,gpu,milli=500"),
        *("--seeds", "2", "--strategy", "stock"),
        strategy="CompactFirst, stock",
        folder=tmp_path,
    )

    assert [(entry["name"], entry["seed"]) for entry in entries] == [
        ("CompactFirst", 0),
        ("CompactFirst", 1),
        ("stock", 0),
        ("stock", 1),
    ]


def test_the_same_call_gives_the_same_answer(tmp_path: Path) -> None:
    text = rows(*(f"p{number},1,gpu,milli={100 + 37 * number}" for number in range(12)))
    call = ("--order", "shuffle", "--seeds", "3")
    first, second = (results(text, *call, folder=tmp_path) for _ in range(2))
    for entry in (*first, *second):
        del entry["cpuSeconds"]

    assert first == second


def test_shuffled_orders_differ_by_seed(tmp_path: Path) -> None:
    # Only the pod that comes first has the CPU that it needs.
    text = rows("big,8,gpu,milli=1000", "small,8,gpu,milli=100")
    state = (device_class(), node("node-a"), slice_of("node-a", gpu("gpu-0")))
    call = ("--order", "shuffle", "--seeds", "8")
    entries = results(text, *call, state=state, folder=tmp_path)

    assert {entry["capacities"][0]["allocated"] for entry in entries} == {1000, 100}


ARRIVALS = rows(
    "first,8,0,100",
    "second,8,10,",
    "third,1,5,",
    columns="name,cpu,arrival,departure",
)


def test_in_the_order_of_the_file_nothing_leaves(tmp_path: Path) -> None:
    (result,) = results(ARRIVALS, state=[node("node-a")], folder=tmp_path)

    assert result["pods"] == {"placed": 1, "failed": 2}
    assert result["failedBy"] == {"cpu": 2}


def test_in_the_order_of_arrival_pods_wait_for_others_to_leave(tmp_path: Path) -> None:
    call = ("--order", "arrival")
    (result,) = results(ARRIVALS, *call, state=[node("node-a")], folder=tmp_path)

    # The third came before the second, and takes the CPU that the second would need.
    assert result["pods"] == {"placed": 2, "failed": 1}
    assert result["waitingSeconds"] == {
        "p50": 95,
        "p99": 95,
        "ofAll": {"p50": 95, "p99": None},
    }


def test_the_snapshot_is_the_cluster_before_the_first_pod(tmp_path: Path) -> None:
    def bound(name: str, phase: str) -> Document:
        container = {"name": "main", "image": "main", "resources": {"requests": {"cpu": "8"}}}
        return api_object(
            "Pod",
            name,
            "team",
            spec={"nodeName": "node-a", "containers": [container]},
            status={"phase": phase},
        )

    text = rows("a,8,,", "b,8,,")
    state = (*STATE, holding("busy", "gpu-0", "node-b"), bound("done", "Succeeded"))
    (finished,) = results(text, state=state, folder=tmp_path)
    (running,) = results(text, state=(*state, bound("runs", "Running")), folder=tmp_path)

    assert finished["pods"] == {"placed": 2, "failed": 0}
    assert running["pods"] == {"placed": 1, "failed": 1}
    assert running["devices"] == {"total": 4, "inUse": 1, "wholeIdle": 3}


def test_columns_in_any_order(tmp_path: Path) -> None:
    text = rows(
        '"device.driver == ""gpu.example.com""",disk=ssd,2,gpu,a,milli=10',
        columns="selector,nodeSelector,count,class,name,capacity",
    )
    (result,) = results(text, folder=tmp_path)

    assert result["pods"] == {"placed": 1, "failed": 0}
    assert result["devices"]["inUse"] == 2


def test_policies_are_those_of_the_bridge_and_not_of_the_stock_scheduler(tmp_path: Path) -> None:
    policy = api_object(
        "DeviceCompatibilityPolicy",
        "apart",
        spec={
            "driver": DRIVER,
            "rules": [
                {
                    "name": "one",
                    "selectors": [{"cel": {"expression": "device.attributes[device.driver].one"}}],
                    "compatibilityGroups": ["one"],
                },
                {
                    "name": "other",
                    "selectors": [{"cel": {"expression": "!device.attributes[device.driver].one"}}],
                    "compatibilityGroups": ["other"],
                },
            ],
        },
    )
    card = {"parentUUID": {"string": "card"}}
    devices = [
        gpu("gpu-0", attributes={**card, "one": {"bool": True}}),
        gpu("gpu-1", attributes={**card, "one": {"bool": False}}),
    ]
    state = (device_class(), node("node-a"), slice_of("node-a", *devices), policy)
    text = rows("a,1,gpu,milli=1000", "b,1,gpu,milli=1000")
    stock, ours = results(text, state=state, strategy="stock,FirstFit", folder=tmp_path)

    assert stock["pods"] == {"placed": 2, "failed": 0}
    assert ours["pods"] == {"placed": 1, "failed": 1}


def test_limits_of_a_pool_of_nodes_are_those_of_the_bridge_alone(tmp_path: Path) -> None:
    pool = {
        "name": "ssd",
        "nodeSelector": {"matchLabels": {"disk": "ssd"}},
        "maxConsumersPerNode": 1,
    }
    ownership = documents.ownership({"name": DRIVER, "maxConsumersPerNode": 3, "pools": [pool]})
    text = rows(*(f"{name},1,gpu,milli=100" for name in "abcdef"))
    stock, ours = results(
        text, state=(*STATE, ownership), strategy="stock,FirstFit", folder=tmp_path
    )

    assert stock["pods"] == {"placed": 6, "failed": 0}
    assert ours["pods"] == {"placed": 4, "failed": 2}


@pytest.mark.parametrize(("percent", "exits"), [("37.5", 0), ("37.51", 1), ("0", 0), ("100", 1)])
def test_check_below(percent: str, exits: int, tmp_path: Path) -> None:
    text = rows("a,1,gpu,milli=1500", "b,1,gpu,milli=1000", "c,1,gpu,milli=500")
    call = ("--check-below", percent)
    (result,) = results(text, *call, folder=tmp_path, exits=exits)

    assert result["capacities"][0]["allocated"] == 1500


def test_check_below_names_the_replays_that_are(tmp_path: Path) -> None:
    call = ("--strategy", "stock", "--check-below", "50")
    outcome = replay(rows("a,1,gpu,milli=1000"), *call, folder=tmp_path)

    assert outcome.exit_code == 1
    assert outcome.stderr == (
        "stock, seed 0: 25.00 % of milli of gpu.example.com is allocated, below 50 %\n"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--strategy", "Worst"), "unknown strategy 'Worst'; known are: stock, "),
        (("--strategy", "Compactfirst"), "did you mean CompactFirst? All are: stock, stock-most"),
        (("--strategy", ","), "names no strategy"),
        (("--order", "random"), "'random' is not one of"),
        (("--seeds", "0"), "0 is not in the range"),
        (("--check-below", "nan"), "write a number from 0 to 100"),
        (("--check-below", "101"), "101"),
        (("-f", str(EXAMPLES / "share.yaml")), "--pods and -f are mutually exclusive"),
        (("--demand", "130%"), "--demand needs --pods from-snapshot"),
        (("--demand", "0%"), "'0%' is not a percentage above 0 and up to 1000"),
        (("--demand", "much"), "'much' is not a percentage"),
        (("--add-nodes", "node-a"), "write N=NODE, such as 10=node-a, not 'node-a'"),
        (("--add-nodes", "0=node-a"), "0 is not a number from 1 to 10000"),
        (("--add-nodes", "-1=node-a"), "-1 is not a number from 1 to 10000"),
        (("--add-nodes", "1000000=node-a"), "1000000 is not a number from 1 to 10000"),
        (
            ("--add-nodes", "1=nodea"),
            "unknown node 'nodea'; did you mean node-a? known are: node-a",
        ),
        (("--demand", "1.3"), "'1.3' may be a share or percent: write 130% or 1.3%"),
        (("--add-nodes", "1=node-z"), "known are: node-a, node-b"),
        (("--scheduler-config", str(EXAMPLE / "cluster.yaml")), "one object of kind KubeScheduler"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_calls(options: tuple[str, ...], message: str, tmp_path: Path) -> None:
    outcome = replay(rows("a,1,,"), *options, folder=tmp_path)

    assert (outcome.exit_code, outcome.stdout) == (2, "")
    assert message in outcome.stderr


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (("--pods", EXAMPLE / "pods.csv"), "No cluster is given"),
        (("--snapshot", EXAMPLE / "cluster.yaml"), "Missing option '--pods'"),
        (("--snapshot", "-", "--pods", "-"), "can be read only once"),
        (("--snapshot", EXAMPLE / "cluster.yaml", "--pods", "absent.csv"), "absent.csv: No such"),
    ],
    ids=["no cluster", "no pods", "standard input twice", "no such file"],
)
def test_without_a_cluster_or_pods(call: tuple[object, ...], message: str) -> None:
    outcome = drawbridge("replay", *call, stdin="")

    assert (outcome.exit_code, outcome.stdout) == (2, "")
    assert message in outcome.stderr


def test_a_check_without_capacities_is_a_wrong_call(tmp_path: Path) -> None:
    state = (device_class(), node("node-a"), slice_of("node-a"))
    call = ("--check-below", "1")
    outcome = replay(rows("a,1,,"), *call, state=state, folder=tmp_path)

    assert (outcome.exit_code, outcome.stdout) == (2, "")
    assert "needs devices with a capacity" in outcome.stderr


def test_all_faults_of_a_csv_with_their_lines(tmp_path: Path) -> None:
    text = rows("a,much,gpu,milli=1", "b,1,gpu,milli=1", "b,1,,milli=1", ",1,,")
    outcome = replay(text, folder=tmp_path)

    assert (outcome.exit_code, outcome.stdout) == (2, "")
    assert outcome.stderr.splitlines() == [
        'standard input: line 2, cpu: "much" is not a quantity such as 500m, 4 or 16Gi',
        'standard input: line 4, name: "b" is the pod of line 3',
        "standard input: line 4, capacity: a pod without class has no devices",
        "standard input: line 5, name: empty",
    ]


def test_a_table_of_another_kind_has_an_end(tmp_path: Path) -> None:
    outcome = replay(rows(*(f"p{number},x,," for number in range(200))), folder=tmp_path)

    assert (outcome.exit_code, outcome.stdout) == (2, "")
    assert len(outcome.stderr.splitlines()) == 101
    assert outcome.stderr.splitlines()[-1] == (
        "standard input: there may be more faults; the first 100 are named"
    )


def test_bytes_that_are_not_text(tmp_path: Path) -> None:
    pods = tmp_path / "pods.csv"
    pods.write_bytes(b"name,cpu\na,1\n\xff,1\n")
    outcome = drawbridge("replay", "--snapshot", EXAMPLE / "cluster.yaml", "--pods", pods)

    assert (outcome.exit_code, outcome.stdout) == (2, "")
    assert outcome.stderr == f"{pods}: line 3: not UTF-8\n"


@pytest.mark.parametrize(
    "text",
    [
        f"name,{HIDDEN}\na,1\n",
        f"name,cpu\na,{HIDDEN}\n",
        f'name,cpu\n"{HIDDEN}\n::error::",1\n"{HIDDEN}\n::error::",1\n',
        f"name,class,capacity\na,gpu,{HIDDEN}=1;{HIDDEN}=1\n",
        f"name,class,selector\na,gpu,{HIDDEN}\n",
        f"name,class,capacity\na,gpu,{HIDDEN}=1\nb,{HIDDEN},\n",
    ],
    ids=["column", "quantity", "name", "capacity", "selector", "what the cluster lacks"],
)
def test_no_fault_has_characters_that_a_terminal_obeys(text: str, tmp_path: Path) -> None:
    outcome = replay(text, folder=tmp_path)

    assert (outcome.exit_code, outcome.stdout) == (2, "")
    lines = outcome.stderr.removesuffix("\n").split("\n")
    assert [line for line in lines if not line.isprintable()] == []
    assert not any(line.lstrip().startswith("::") or "##vso" in line for line in lines)


@pytest.mark.parametrize("output", ["text", "json", "yaml"])
def test_no_answer_has_them(output: str, tmp_path: Path) -> None:
    text = f"name,cpu,class,capacity\n{HIDDEN},1,gpu,\nb,1,gpu,{HIDDEN}=2\nc,1,{HIDDEN},\n"
    device = gpu("gpu-0", capacity={HIDDEN: {"value": "1"}})
    # An error with the name of the pod, the class, and the key in its selector.
    failing = device_class(HIDDEN)
    failing["spec"]["selectors"] = [{"cel": {"expression": f"device.attributes['{HIDDEN}'].x"}}]
    state = (device_class(), failing, node("node-a"), slice_of("node-a", device))
    outcome = replay(text, "-o", output, state=state, folder=tmp_path)

    assert outcome.exit_code == 0, outcome.output
    printed = outcome.stdout + outcome.stderr
    assert [line for line in printed.split("\n") if not line.isprintable()] == []


def test_the_text_has_a_line_for_each_replay_and_the_reasons(tmp_path: Path) -> None:
    call = ("--strategy", "stock,CompactFirst")
    outcome = replay(rows("a,1,gpu,milli=1000", "b,9,,"), *call, folder=tmp_path)

    assert outcome.exit_code == 0
    assert outcome.stdout.splitlines()[1:11] == [
        "2 pods in the order file. ALLOCATED: the share of milli of gpu.example.com at the end",
        "The pods request 1 of 4 devices, 25.00 %: milli of gpu.example.com 25.00 %",
        "",
        "STRATEGY      SEED  PLACED  FAILED  ALLOCATED  IN USE  IDLE  2ND TRY",
        "stock         0     1       1       25.00 %    1       3     0",
        "CompactFirst  0     1       1       25.00 %    1       3     0",
        "",
        "Pods that failed, by reason",
        "  stock, seed 0: cpu 1",
        "  CompactFirst, seed 0: cpu 1",
    ]


def test_the_text_has_waiting_times_where_time_passes(tmp_path: Path) -> None:
    call = ("--strategy", "stock", "--order", "arrival")
    outcome = replay(ARRIVALS, *call, state=[node("node-a")], folder=tmp_path)

    lines = outcome.stdout.splitlines()
    place = lines.index("") + 1
    assert lines[place : place + 4] == [
        "STRATEGY  SEED  PLACED  FAILED  MEAN  PEAK  AT END  IN USE  IDLE  2ND TRY  WAIT P50  P99",
        "stock     0     2       1       -     -     -       0       0     0        95 s      never",
        "",
        "WAIT: of all pods; never: such a pod got no node",
    ]


LEAVE = rows(
    "a,gpu,milli=1000,0,100",
    "b,gpu,milli=1000,50,90",
    "c,,,100,",
    columns="name,class,capacity,arrival,departure",
)


def test_where_pods_leave_the_mean_over_time_is_the_headline(tmp_path: Path) -> None:
    """One GPU of four for half of the time, and 40 seconds of another one; at the end all are idle."""
    call = ("--order", "arrival")
    (entry,) = results(LEAVE, *call, folder=tmp_path)
    outcome = replay(LEAVE, "--strategy", "stock", *call, folder=tmp_path)
    shown = replay(LEAVE, "--strategy", "stock", *call, "-o", "html", folder=tmp_path).stdout

    assert entry["overTime"] == {
        "fromSecond": 0,
        "untilSecond": 100,
        "meanPercent": 35,
        "peakPercent": 50,
        "meanInUse": 1.4,
    }
    assert entry["capacities"][0]["allocated"] == 0
    assert outcome.stdout.splitlines()[1:3] == [
        f"3 pods in the order arrival. MEAN, PEAK: the share of milli of {DRIVER}",
        "from second 0 to 100. AT END, IN USE, IDLE: when all is over",
    ]
    assert "35.00 %  50.00 %  0.00 %" in outcome.stdout
    assert "mean over time" in Outline(shown).texts
    meaning = f"MEAN, PEAK: the share of milli of {DRIVER} from second 0 to 100. AT END, "
    assert any(meaning in text for text in Outline(shown).texts)
    assert "after 3 pods, second 100: 4 idle, 0 full, of 4" in Outline(shown).texts


def test_the_mean_is_what_check_below_compares_where_pods_leave(tmp_path: Path) -> None:
    call = ("--order", "arrival", "--strategy", "stock", "--check-below")
    below = replay(LEAVE, *call, "36", folder=tmp_path)

    assert (replay(LEAVE, *call, "35", folder=tmp_path).exit_code, below.exit_code) == (0, 1)
    assert below.stderr.endswith(
        f"35.00 % of milli of {DRIVER} is allocated in the mean over time, below 36 %\n"
    )


def test_where_pods_leave_added_nodes_bring_a_mean(tmp_path: Path) -> None:
    """The second pod fits the added node alone, for half of the time until the third comes."""
    text = rows(
        *("a,gpu,milli=1000,0,", "b,gpu,milli=1000,50,", "c,,,100,"),
        columns="name,class,capacity,arrival,departure",
    )
    state = (device_class(), node("node-a"), slice_of("node-a", gpu("gpu-0")))
    call = ("--order", "arrival", "--add-nodes", "1=node-a")

    (entry,) = results(text, *call, state=state, folder=tmp_path)

    assert entry["gain"] == {"pods": 1, "devicesInUse": 0.5, "allocated": 1000, "meanPercent": -25}


# --- other pods, more nodes -----------------------------------------------------------------------


def running(name: str, node_name: str, cpu: str = "1", **metadata: Any) -> Document:
    """Return a pod that runs, with the claim that it has the device gpu-0 of its node by."""
    return api_object(
        "Pod",
        name,
        "team",
        **metadata,
        spec={
            "nodeName": node_name,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
        },
        status={"phase": "Running"},
    )


def manifest(name: str, *claims: str, cpu: str = "1") -> Document:
    return api_object(
        "Pod",
        name,
        "team",
        spec={
            "containers": [{"name": "c", "resources": {"limits": {"cpu": cpu}}}],
            "resourceClaims": [{"name": use, "resourceClaimName": use} for use in claims],
        },
    )


def asked(*options: object, folder: Path, state: Sequence[Document] = STATE) -> Result:
    snapshot = folder / "cluster.yaml"
    snapshot.write_text(dump_yaml(state))
    call = ("--strategy", "stock", "-o", "json", "--snapshot", snapshot)
    return drawbridge("replay", *call, *options)


def answered(result: Result) -> Document:
    assert result.exit_code == 0, result.output
    (entry,) = json.loads(result.stdout)["strategies"]
    result_: Document = entry
    return result_


def test_pods_of_manifests_are_placed_with_claims_of_their_own(tmp_path: Path) -> None:
    file = tmp_path / "pods.yaml"
    objects = (claim("whole"), manifest("a", "whole"), manifest("b", cpu="9"), manifest("c", "no"))
    file.write_text(dump_yaml([*objects, {**manifest("d"), "kind": "Pod"}]))

    result = asked("-f", file, folder=tmp_path)

    entry = answered(result)
    assert entry["pods"] == {"placed": 2, "failed": 1}
    assert entry["failedBy"] == {"cpu": 1}
    assert entry["devices"]["inUse"] == 1
    assert "left out: Pod/team/c: ResourceClaim team/no not found" in result.stderr


def test_a_workload_of_manifests_stands_for_its_pods(tmp_path: Path) -> None:
    file = tmp_path / "workload.yaml"
    template = {"spec": manifest("x", cpu="3")["spec"], "metadata": {"labels": {"app": "x"}}}
    deployment = api_object("Deployment", "web", "team", spec={"replicas": 5, "template": template})
    file.write_text(dump_yaml([deployment]))

    assert answered(asked("-f", file, folder=tmp_path))["pods"] == {"placed": 4, "failed": 1}


def test_pods_are_drawn_from_those_that_run(tmp_path: Path) -> None:
    """Their nodes are emptied, but for a DaemonSet's pods; four GPUs times 1.5 are six pods."""
    daemon = running("agent", "node-a", "2", ownerReferences=[{"kind": "DaemonSet", "name": "a"}])
    del daemon["spec"]["resourceClaims"]
    state = (
        *STATE,
        running("train", "node-a"),
        holding("train", "node-a", "gpu-0"),
        daemon,
        manifest("waits", "waits"),
        claim("waits"),
    )

    entry = answered(
        asked("--pods", "from-snapshot", "--demand", "150%", folder=tmp_path, state=state)
    )

    assert entry["pods"] == {"placed": 4, "failed": 2}
    assert entry["devices"] == {"total": 4, "inUse": 4, "wholeIdle": 0}
    usual = answered(asked("--pods", "from-snapshot", folder=tmp_path, state=state))
    assert sum(usual["pods"].values()) == 6  # 130 % of four, rounded up.


def test_a_cluster_without_running_pods_has_no_mix(tmp_path: Path) -> None:
    result = asked("--pods", "from-snapshot", folder=tmp_path)

    assert (result.exit_code, result.stdout) == (2, "")
    assert "No pod that requests devices by a claim runs in this cluster" in result.stderr


def test_added_nodes_bring_devices_and_cpu(tmp_path: Path) -> None:
    text = rows(*(f"p{number},3,gpu,milli=600" for number in range(12)))

    def placed(*options: str) -> tuple[int, int]:
        (entry,) = results(text, *options, folder=tmp_path)
        return entry["pods"]["placed"], entry["devices"]["total"]

    assert placed() == (4, 4)
    assert placed("--add-nodes", "2=node-b") == (8, 8)
    assert placed("--add-nodes", "1=node-a", "--add-nodes", "1=node-a") == (8, 8)


def test_a_result_tells_what_added_nodes_bring(tmp_path: Path) -> None:
    text = rows(*(f"p{number},3,gpu,milli=600" for number in range(12)))
    flags = ("--add-nodes", "2=node-b")

    (as_it_is,) = results(text, folder=tmp_path)
    (entry,) = results(text, *flags, folder=tmp_path)
    shown = replay(text, "--strategy", "stock", *flags, folder=tmp_path).stdout
    page = replay(text, "--strategy", "stock", *flags, "-o", "html", folder=tmp_path).stdout

    assert "gain" not in as_it_is
    assert entry["gain"] == {"pods": 4, "devicesInUse": 4, "allocated": 2400.0}
    assert "MORE PODS  MORE IN USE\n" in shown
    assert "  +4         +4\n" in shown
    assert "+4 pods, +4 devices in use" in page


def test_idle_devices_have_a_reason(tmp_path: Path) -> None:
    text = rows(*(f"p{number},5,gpu,milli=600" for number in range(3)), "q,9,,")

    (entry,) = results(text, folder=tmp_path)
    assert (entry["failedBy"], entry["idleBecause"]) == ({"cpu": 2}, {"cpu": 2})
    (entry,) = results(rows("a,1,gpu,milli=600"), folder=tmp_path)
    assert entry["idleBecause"] == {"nobodyAsks": 3}
    text = replay(text, "--strategy", "stock", folder=tmp_path).stdout
    assert (
        "Idle devices, by what keeps pods that failed from them\n  stock, seed 0: cpu 2\n" in text
    )


def test_text_and_page_compare_the_pods_that_failed_by_what_they_request(tmp_path: Path) -> None:
    """Six shapes fail; five are told, and the rest is summed. With more seeds the numbers are those of the first."""
    text = rows(
        *(f"f{number},1,gpu,milli=1000" for number in range(4)),
        *(f"p{number},1,gpu,milli={900 + number // 2}" for number in range(12)),
    )
    call = ("--strategy", "stock,BestFit", "--seeds", "2")

    shown = replay(text, *call, folder=tmp_path).stdout
    page_ = replay(text, *call, "-o", "html", folder=tmp_path).stdout

    assert (
        "Pods that failed, by what they request\n"
        "stock  BestFit  OF  DEVICES OF EACH\n"
        "2      2        2   1 gpu with milli 900\n"
    ) in shown
    assert shown.count("1 gpu with milli") == 5
    assert "\n2      2        2   1 other kind (failedShapes in JSON)\n" in shown
    assert "1 gpu with milli 900" in Outline(page_).texts


def test_the_place_of_each_pod(tmp_path: Path) -> None:
    text = rows("a,1,gpu,milli=500", "b,9,,")
    (entry,) = results(text, "--placements", folder=tmp_path)
    (without,) = results(text, folder=tmp_path)
    in_text = replay(text, "--placements", folder=tmp_path)

    assert entry["placements"] == [
        {"namespace": "default", "name": "a", "node": entry["placements"][0]["node"]},
        {"namespace": "default", "name": "b", "reason": "cpu"},
    ]
    assert entry["placements"][0]["node"] in {"node-a", "node-b"}
    assert "placements" not in without
    assert (in_text.exit_code, in_text.stdout) == (2, "")
    assert "--placements needs -o json or -o yaml" in in_text.stderr


@pytest.mark.parametrize(
    ("spec", "want", "note"),
    [
        ({"unschedulable": True}, "unschedulable", "node is unschedulable"),
        (
            {"taints": [{"key": "broken", "effect": "NoSchedule"}]},
            "untoleratedTaint",
            "untolerated taint broken:NoSchedule",
        ),
        ({}, None, None),
    ],
)
def test_devices_of_a_node_that_is_closed(
    spec: Document, want: str | None, note: str | None, tmp_path: Path
) -> None:
    """Three pods ask for a GPU, and the open node has two; copies of the other are closed as it is."""
    closed = {**node("node-b"), "spec": spec}
    state = (*(entry for entry in STATE if entry["metadata"]["name"] != "node-b"), closed)
    text = rows(*(f"p{number},1,gpu,milli=600" for number in range(3)))

    (entry,) = results(text, state=state, folder=tmp_path)
    added = replay(
        text, "--strategy", "stock", "--add-nodes", "2=node-b", state=state, folder=tmp_path
    )

    assert entry["idleBecause"] == ({want: 2} if want else {"nobodyAsks": 1})
    line = f"note: no pod can run on the nodes that are added like node-b: {note}\n"
    assert added.stderr.startswith(line) == (note is not None)


def test_devices_of_a_node_that_nobody_chooses_are_not_blocked_by_its_taint(tmp_path: Path) -> None:
    tainted = {**node("node-b"), "spec": {"unschedulable": True}}
    state = (*(entry for entry in STATE if entry["metadata"]["name"] != "node-b"), tainted)
    text = rows(
        *(f"p{number},1,gpu,milli=600,disk=ssd" for number in range(3)),
        columns="name,cpu,class,capacity,nodeSelector",
    )

    (entry,) = results(text, state=state, folder=tmp_path)

    assert entry["idleBecause"] == {"nobodyAsks": 2}


def test_the_schedulers_configuration_is_followed(tmp_path: Path) -> None:
    """Of a large and a small node the first is emptier, and the second is fuller."""
    state = (
        device_class(),
        node("node-a", cpu=16),
        node("node-b"),
        slice_of("node-b", gpu("gpu-0")),
    )
    file = tmp_path / "scheduler.yaml"
    strategy = {"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu"}]}}
    profile = {"pluginConfig": [{"name": "NodeResourcesFit", "args": strategy}]}
    kind = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile],
    }
    file.write_text(dump_yaml([kind]))
    text = rows("a,7,,", "b,2,gpu,milli=10")  # b only fits node-b, and only if a is not there.

    def placed(*options: object) -> int:
        (entry,) = results(text, *options, state=state, folder=tmp_path)
        count: int = entry["pods"]["placed"]
        return count

    assert (placed(), placed("--scheduler-config", file)) == (2, 1)


# --- the page -------------------------------------------------------------------------------------


def page(*options: object, driver: str = DRIVER, devices: int = 2, folder: Path) -> str:
    slices = [
        slice_of(name, *(gpu(f"gpu-{number}") for number in range(devices)))
        for name in ("node-a", "node-b")
    ]
    for slice_ in slices:
        slice_["spec"]["driver"] = driver
    class_ = device_class()
    class_["spec"]["selectors"] = []
    text = rows(*(f"p{number},1,gpu,milli=600" for number in range(6)))
    state = (class_, node("node-a"), node("node-b"), *slices)
    result = replay(
        text, "--strategy", "stock,BestFit", "-o", "html", *options, state=state, folder=folder
    )
    assert result.exit_code == 0, result.stderr
    return result.stdout


def test_the_page_has_curves_and_maps_of_each_strategy(tmp_path: Path) -> None:
    outline = Outline(page("--seeds", "2", folder=tmp_path))

    assert "Devices with stock" in outline.texts
    assert "Devices with BestFit" in outline.texts
    names = [name for name, _ in outline.elements]
    # Four moments of each strategy with four devices, and two curves of each with five lines.
    assert (names.count("rect"), names.count("polyline")) == (2 * 4 * 4, 2 * (2 + 5))
    assert "after 6 pods: 0 idle, 0 full, of 4" in outline.texts


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_no_name_changes_the_elements_of_the_page(text: str, tmp_path: Path) -> None:
    plain, hostile = (Outline(page(driver=name, folder=tmp_path)) for name in ("plain", text))

    assert plain.elements == hostile.elements
    assert any(printable(text) in shown for shown in hostile.texts)
    assert not {name for name, _ in hostile.attributes} & {"src", "style", "href"}


def test_a_map_of_many_devices_is_bounded(tmp_path: Path) -> None:
    """A box then stands for several devices."""
    outline = Outline(page(devices=3_000, folder=tmp_path))

    cells = [name for name, _ in outline.elements].count("rect")
    assert 2 * 4 * 1_000 < cells <= MAX_CELLS
    assert any(text.startswith("A box is 3 devices") for text in outline.texts)
