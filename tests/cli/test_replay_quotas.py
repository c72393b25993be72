"""`drawbridge replay --quota`: pods that wait for a quota, and those that never get through."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from answers.recording.lines import Entry
from kube.names import QUOTA_GATE
from testing.command import EXAMPLES, drawbridge
from testing.documents import Document
from testing.recordings import (
    END,
    PLAIN,
    device_quota,
    gone,
    namespace,
    pod,
    put,
    replay,
    resource_quota,
    write,
)
from testing.simulated_cluster import claim, holding


def quotas(folder: Path, *documents: Document) -> Path:
    path = folder / "quota.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    return path


def with_device(at: float, name: str, gpus: int = 1, **spec: Any) -> list[Entry]:
    """Return the changes of a pod that comes with a claim for devices."""
    return [put(at, claim(f"{name}-gpu", gpus)), put(at, pod(name, claims=[f"{name}-gpu"], **spec))]


def held(document: Document) -> Sequence[tuple[str, str, int, int, float]]:
    (result,) = document["strategies"]
    return [
        (row["quota"], row["namespace"], row["pods"], row["placed"], row["waitingSeconds"]["p99"])
        for row in result.get("heldBack", ())
    ]


ONE: Document = {"devices": {}, "max": 1}
FEW = "DeviceQuota few, limit gpus"


def a_then_b(folder: Path, **spec: Any) -> Path:
    """Return a recording of two pods with a device each; the first is deleted after a while."""
    return write(
        folder / "day.json",
        [
            *with_device(10, "a", **spec),
            *with_device(20, "b"),
            gone(60, pod("a", claims=["a-gpu"])),
            END,
        ],
        state=PLAIN,
    )


def test_a_pod_waits_until_the_budget_is_free_again(tmp_path: Path) -> None:
    document = replay(a_then_b(tmp_path), "--quota", quotas(tmp_path, device_quota(ONE)))

    (stock,) = document["strategies"]
    assert stock["pods"] == {"placed": 2, "failed": 0}
    assert held(document) == [(FEW, "team", 1, 1, 40.0)]


def test_without_the_flag_nobody_waits(tmp_path: Path) -> None:
    document = replay(a_then_b(tmp_path))

    assert document["strategies"][0]["waitingSeconds"]["p99"] == 0.0
    assert "heldBack" not in document["strategies"][0]


@pytest.mark.parametrize(
    ("expected", "document"),
    [
        ([(FEW, "team", 1, 1, 40.0)], device_quota({"claims": {}, "max": 1})),
        ([], device_quota({"devices": {}, "max": 2})),
        ([], device_quota(ONE, enforcement="Audit")),
        ([], device_quota({**ONE, "driver": "other.example.com"})),
        ([], device_quota(ONE, labels={"team": "other"})),
        ([("ResourceQuota small, pods", "team", 1, 1, 40.0)], resource_quota({"pods": 1})),
        ([("ResourceQuota small, requests.cpu", "team", 1, 1, 40.0)], resource_quota({"requests.cpu": "1500m"})),
        ([("ResourceQuota small, count/resourceclaims.resource.k8s.io", "team", 1, 1, 40.0)], resource_quota({"count/resourceclaims.resource.k8s.io": 1})),
        ([("ResourceQuota small, gpu.deviceclass.resource.k8s.io/devices", "team", 1, 1, 40.0)], resource_quota({"gpu.deviceclass.resource.k8s.io/devices": 1})),
        ([], resource_quota({"pods": 1}, namespace="other")),
        ([], resource_quota({"pods": 1}, scopes=["BestEffort"])),
    ],
)  # fmt: skip
def test_what_a_quota_counts(
    expected: list[tuple[str, str, int, int, float]], document: Document, tmp_path: Path
) -> None:
    recorded = a_then_b(tmp_path)
    assert held(replay(recorded, "--quota", quotas(tmp_path, document))) == expected


def test_a_request_above_the_limit_never_gets_through(tmp_path: Path) -> None:
    path = write(tmp_path / "day.json", [*with_device(10, "a", 2), END], state=PLAIN)

    document = replay(path, "--quota", quotas(tmp_path, device_quota(ONE)))

    (stock,) = document["strategies"]
    assert stock["failedBy"] == {"deviceQuota": 1}
    assert stock["idleBecause"] == {"deviceQuota": 4}
    assert held(document) == [(FEW, "team", 1, 0, 0.0)]


def test_namespaces_come_from_the_recording_and_from_the_file(tmp_path: Path) -> None:
    labelled = device_quota(ONE, labels={"tenant": "vision"})
    path = write(
        tmp_path / "day.json",
        [
            *with_device(10, "a"),
            *with_device(20, "b"),
            END,
        ],
        state=[*PLAIN, namespace("team", tenant="vision")],
    )
    recorded = replay(path, "--quota", quotas(tmp_path, labelled))
    given = replay(path, "--quota", quotas(tmp_path, labelled, namespace("team", tenant="x")))

    assert held(recorded) == [(FEW, "team", 1, 0, 0.0)]
    assert held(given) == []


def test_pods_that_run_before_are_charged(tmp_path: Path) -> None:
    before = pod("before", on="node-a", claims=["before-gpu"])
    path = write(
        tmp_path / "day.json",
        [*with_device(20, "b"), gone(50, before), END],
        state=[*PLAIN, holding("before-gpu", "gpu-0", "node-a"), before],
    )

    document = replay(path, "--quota", quotas(tmp_path, device_quota(ONE)))

    assert held(document) == [(FEW, "team", 1, 1, 30.0)]


def test_a_pod_that_a_recorded_quota_held_back_comes_when_it_was_created(tmp_path: Path) -> None:
    gates = [{"name": QUOTA_GATE}]
    status = {"conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}
    first = {**pod("a", claims=["a-gpu"], schedulingGates=gates), "status": status}
    through = {**pod("a", claims=["a-gpu"]), "status": {"conditions": []}}
    own = with_device(10, "a")[0]
    path = write(
        tmp_path / "day.json",
        [
            *(own, put(10, first), *with_device(20, "b")),
            put(50, pod("b", on="node-a", claims=["b-gpu"]), "spec"),
            *(gone(60, pod("b")), put(70, through, "spec", "status"), END),
        ],
        state=PLAIN,
    )

    document = replay(path, "--quota", quotas(tmp_path, device_quota(ONE)))

    # It is first now, and stays, so the other one never gets through.
    assert held(document) == [(FEW, "team", 1, 0, 0.0)]
    assert replay(path)["strategies"][0]["pods"] == {"placed": 2, "failed": 0}


def test_of_a_csv_each_pod_is_tried_once(tmp_path: Path) -> None:
    files = EXAMPLES / "replay"
    options = ("--quota", files / "quota.yaml", "-o", "json", "--strategy", "stock,BestFit")
    outcome = drawbridge(
        "replay",
        *("--snapshot", files / "cluster.yaml", "--pods", files / "pods.csv"),
        *options,
    )

    assert outcome.exit_code == 0, outcome.output
    for result in json.loads(outcome.stdout)["strategies"]:
        assert result["failedBy"]["deviceQuota"] == 4
        assert result["heldBack"][0]["pods"] == 4


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("no DeviceQuota and no ResourceQuota in", yaml.safe_dump(namespace("team"))),
        ("DeviceQuota/few: spec.limits[0].max: ", yaml.safe_dump(device_quota({"max": "lots"}))),
        ("quota.yaml:", "kind: [\n"),
    ],
)
def test_a_file_without_a_good_quota_is_a_wrong_call(
    message: str, text: str, tmp_path: Path
) -> None:
    file = tmp_path / "quota.yaml"
    file.write_text(text)

    outcome = drawbridge("replay", "--snapshot", a_then_b(tmp_path), "--quota", file)

    assert (outcome.exit_code, outcome.stdout) == (2, "")
    assert message in outcome.stderr


def test_what_counts_nothing_is_noted(tmp_path: Path) -> None:
    file = quotas(
        tmp_path,
        device_quota({**ONE, "driver": "other.example.com"}),
        resource_quota({"limits.cpu": 1, "pods": 9}),
    )

    outcome = drawbridge(
        *("replay", "--snapshot", a_then_b(tmp_path), "--strategy", "stock", "--quota", file)
    )

    assert "note: DeviceQuota few, limit gpus: no device here is of driver other" in outcome.stderr
    assert "note: ResourceQuota team/small: not counted in a replay: limits.cpu" in outcome.stderr


def test_text_and_page_name_who_waited(tmp_path: Path) -> None:
    path, file = a_then_b(tmp_path), quotas(tmp_path, device_quota(ONE))
    call = ("replay", "--snapshot", path, "--strategy", "stock", "--quota", file)

    text, page = drawbridge(*call).stdout, drawbridge(*call, "-o", "html").stdout

    assert "Pods that a quota held back\nSTRATEGY" in text
    assert f"stock, seed 0  {FEW}  team       1     1             40 s      40 s" in text
    assert "Pods that a quota held back" in page
    assert FEW in page
