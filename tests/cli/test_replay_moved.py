"""`drawbridge replay` of a recording with a migration at another moment, or with another driver."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from answers.recording.lines import Entry
from kube.names import REQUEST_ANNOTATION
from testing.command import drawbridge
from testing.documents import Document, api_object, claim, exactly
from testing.recordings import (
    END,
    gone,
    hami_node,
    legacy,
    node,
    plugin_node,
    pod,
    put,
    replay,
    write,
)

HAMI = "hami-core-gpu.project-hami.io"


def coming(at: float, name: str, on: str, *, gpu: int = 0, gpumem: int = 0) -> list[Entry]:
    """Return the changes of a pod with device keys that comes, and is bound a second later."""
    first = legacy(name, gpu=gpu, gpumem=gpumem)
    bound = legacy(name, on=on, gpu=gpu, gpumem=gpumem)
    return [put(at, first), put(at + 1, bound, "spec")]


def counts(document: Document) -> tuple[Document, Document, Document]:
    """Return the placed and failed pods as recorded and as replayed, and the reasons."""
    (result,) = document["strategies"]
    return document["recorded"]["outcome"]["pods"], result["pods"], result["failedBy"]


def devices(document: Document) -> tuple[int, int]:
    (result,) = document["strategies"]
    return result["devices"]["inUse"], result["devices"]["total"]


def day_of_plugins(folder: Path) -> Path:
    return write(
        folder / "day.json",
        [
            *coming(10, "a", "node-a", gpu=1),
            *coming(20, "b", "node-b", gpu=2),
            put(30, legacy("c", gpu=2)),
            gone(100, legacy("b")),
            put(101, legacy("c", on="node-b", gpu=2), "spec"),
            put(200, plugin_node("node-c", 4)),
            *coming(210, "d", "node-c", gpu=4),
            put(300, pod("plain")),
            END,
        ],
        state=[plugin_node("node-a"), plugin_node("node-b")],
    )


def test_pods_that_run_at_the_moment_start_anew_and_later_ones_are_translated(
    tmp_path: Path,
) -> None:
    call = ("--migrated-at", "50")
    path = day_of_plugins(tmp_path)
    outcome = drawbridge("replay", "--snapshot", path, "--strategy", "stock", *call)
    document = replay(path, *call)

    recorded, replayed, reasons = counts(document)
    assert recorded == {"placed": 4, "failed": 1}
    assert replayed == {"placed": 5, "failed": 0}
    assert reasons == {}
    # The devices of the node that came later are offered from then on.
    assert devices(document) == (7, 8)
    (stock,) = document["strategies"]
    assert stock["capacities"][0]["driver"] == "gpu.nvidia.com"
    # The one that waited gets devices when another leaves, as it did.
    assert stock["waitingSeconds"]["p99"] == 50.0
    for use in (stock["overTime"], document["recorded"]["outcome"]["overTime"]):
        assert (use["fromSecond"], use["untilSecond"]) == (50, 1000)
    assert (
        "note: a migration in second 50 of 1000: 5 pods from then on, 2 of them started anew"
        in outcome.stderr
    )


@pytest.mark.parametrize(
    "moment", ["50", "50s", "2026-11-20T08:00:50Z", "2026-11-20T09:00:50+01:00"]
)
def test_a_moment_is_a_time_or_seconds(moment: str, tmp_path: Path) -> None:
    path = day_of_plugins(tmp_path)
    expected = replay(path, "--migrated-at", "50")
    document = replay(path, "--migrated-at", moment)
    assert counts(document) == counts(expected)


@pytest.mark.parametrize(
    ("message", "options"),
    [
        ("the recording has the seconds 0 to 1000", ("--migrated-at", "1000")),
        ("the recording has the seconds 0 to 1000", ("--migrated-at", "2026-11-19T08:00:00Z")),
        ("write a time such as", ("--migrated-at", "tuesday")),
        ("write a time such as", ("--migrated-at", "-5")),
        ("unknown driver 'gpu.none'", ("--profile", "nvidia=gpu.none")),
    ],
)  # fmt: skip
def test_a_moment_or_a_driver_that_is_none_is_a_wrong_call(
    message: str, options: Sequence[str], tmp_path: Path
) -> None:
    outcome = drawbridge("replay", "--snapshot", day_of_plugins(tmp_path), *options)

    assert (outcome.exit_code, outcome.stdout) == (2, "")
    assert message in outcome.stderr


def test_only_a_recording_has_a_moment(tmp_path: Path) -> None:
    snapshot = tmp_path / "cluster.yaml"
    snapshot.write_text(yaml.safe_dump(plugin_node("node-a")))
    call = ("--pods", "from-snapshot", "--migrated-at", "5")

    outcome = drawbridge("replay", "--snapshot", snapshot, *call)

    assert outcome.exit_code == 2
    assert "--migrated-at needs the file of drawbridge record" in outcome.stderr


def test_shares_of_another_scheduler_become_claims(tmp_path: Path) -> None:
    """Two shares of 60000Mi fit no card together, and shares of 20000Mi fit beside either."""
    path = write(
        tmp_path / "day.json",
        [
            *coming(10, "a", "node-a", gpu=1, gpumem=60000),
            *coming(20, "b", "node-a", gpu=1, gpumem=60000),
            *coming(30, "c", "node-a", gpu=1, gpumem=20000),
            put(40, legacy("d", gpu=1, gpumem=60000)),
            END,
        ],
        state=[hami_node("node-a")],
    )

    document = replay(path, "--migrated-at", "15")

    recorded, replayed, reasons = counts(document)
    assert recorded == {"placed": 3, "failed": 1}
    assert replayed == {"placed": 3, "failed": 1}
    assert reasons == {"noDevices": 1}
    assert devices(document) == (2, 2)
    (stock,) = document["strategies"]
    (memory,) = [entry for entry in stock["capacities"] if entry["name"] == "memory"]
    assert (memory["driver"], memory["allocated"]) == (HAMI, 140000 * 2**20)


def test_what_ran_without_device_keys_runs_on(tmp_path: Path) -> None:
    before = pod("before", "6", on="node-a")
    path = write(
        tmp_path / "day.json",
        [*coming(10, "web", "node-b"), put(30, legacy("a", cpu="4", gpu=2)), gone(60, before), END],
        state=[plugin_node("node-a"), plugin_node("node-b", gpus=1), before],
    )

    document = replay(path, "--migrated-at", "20")

    # Its CPU is free only when the one beside it has left.
    (stock,) = document["strategies"]
    assert stock["pods"] == {"placed": 1, "failed": 0}
    assert stock["waitingSeconds"]["p99"] == 30.0


def translated(
    folder: Path, document: Document, driver: str, vocabulary: str
) -> Sequence[Document]:
    """Return a pod as the webhook makes it, and the template of its claim."""
    file = folder / "pod.yaml"
    file.write_text(yaml.safe_dump(document))
    call = ("translate", "-f", file, "--profile", f"{vocabulary}={driver}", "-o", "json")
    outcome = drawbridge(*call)
    assert outcome.exit_code == 0, outcome.output
    template, made = json.loads(outcome.stdout)["objects"]
    assert REQUEST_ANNOTATION in made["metadata"]["annotations"]
    return made, template


def card(node_name: str, number: int) -> Document:
    policy = {"default": "80Gi", "validRange": {"min": "1Mi", "max": "80Gi", "step": "1Mi"}}
    cores = {"default": "100", "validRange": {"min": "0", "max": "100", "step": "1"}}
    return {
        "name": f"hami-gpu-{number}",
        "allowMultipleAllocations": True,
        "attributes": {
            "type": {"string": "hami-gpu"},
            "uuid": {"string": f"GPU-{node_name}-{number}"},
            "productName": {"string": "NVIDIA A100"},
        },
        "capacity": {
            "memory": {"value": "80Gi", "requestPolicy": policy},
            "cores": {"value": "100", "requestPolicy": cores},
        },
    }


def slice_of_cards(node_name: str, count: int = 2) -> Document:
    pool = {"name": node_name, "generation": 1, "resourceSliceCount": 1}
    return api_object(
        "ResourceSlice",
        f"{node_name}-hami",
        spec={
            "driver": HAMI,
            "nodeName": node_name,
            "pool": pool,
            "devices": [card(node_name, number) for number in range(count)],
        },
    )


def device_class(name: str) -> Document:
    expression = f"device.driver == '{name}'"
    return api_object(
        "DeviceClass", name, spec={"selectors": [{"cel": {"expression": expression}}]}
    )


def day_of_claims(folder: Path, *pods: Document, vocabulary: str = "hami") -> Path:
    """Return a recording of pods that were translated for HAMi's driver and come every ten seconds."""
    entries: list[Entry] = []
    for number, document in enumerate(pods):
        made, template = translated(folder, document, HAMI, vocabulary)
        second = 10.0 * (number + 1)
        entries += [put(second, template), put(second, made)]
    state = [node("node-a", cpu=8), slice_of_cards("node-a"), device_class(HAMI)]
    return write(folder / "day.json", [*entries, END], state=state)


def test_another_driver_serves_the_keys_that_pods_were_translated_from(tmp_path: Path) -> None:
    """With HAMi's driver four shares fit two cards; with whole GPUs two pods do."""
    shares = [legacy(f"share-{n}", gpu=1) for n in range(4)]
    path = day_of_claims(tmp_path, *shares, vocabulary="nvidia")

    as_it_was = replay(path)
    document = replay(path, "--profile", "nvidia=gpu.nvidia.com")

    assert counts(as_it_was)[1]["placed"] == 2
    assert counts(document)[1] == {"placed": 2, "failed": 2}
    (stock,) = document["strategies"]
    assert {entry["driver"] for entry in stock["capacities"]} == {"gpu.nvidia.com"}
    assert devices(document) == (2, 2)


def test_a_share_becomes_a_whole_device_of_a_driver_that_shares_none(tmp_path: Path) -> None:
    shares = [legacy(f"share-{n}", gpu=1, gpumem=20000) for n in range(4)]
    path = day_of_claims(tmp_path, *shares)

    document = replay(path, "--profile", "hami=gpu.nvidia.com")

    assert counts(replay(path))[1] == {"placed": 4, "failed": 0}
    assert counts(document)[1:] == ({"placed": 2, "failed": 2}, {"noDevices": 2})


def test_what_a_driver_cannot_express_is_denied(tmp_path: Path) -> None:
    entries = [put(10, legacy("part", {"mig-1g.10gb": 1})), *coming(20, "whole", "node-a", gpu=1)]
    path = write(tmp_path / "day.json", [*entries, END], state=[plugin_node("node-a")])

    outcome = drawbridge(
        *("replay", "--snapshot", path, "--strategy", "stock", "--profile", f"nvidia={HAMI}")
    )

    assert outcome.exit_code == 0, outcome.output
    assert "stock, seed 0: denied 1" in outcome.stdout
    key = "spec.containers[0].resources.limits[nvidia.com/mig-1g.10gb]"
    assert f"note: denied: 1 pod: {key}: " in outcome.stderr


def test_devices_of_a_driver_go_to_one_driver_only(tmp_path: Path) -> None:
    whole = translated(tmp_path, legacy("whole", gpu=1), HAMI, "nvidia")
    share = translated(tmp_path, legacy("share", gpu=1, gpumem=20000), HAMI, "hami")
    entries = [put(1, document) for documents in (whole, share) for document in reversed(documents)]
    path = write(tmp_path / "day.json", [*entries, END], state=[node("node-a")])

    outcome = drawbridge("replay", "--snapshot", path, "--profile", "nvidia=gpu.nvidia.com")

    assert (outcome.exit_code, outcome.stdout) == (2, "")
    assert f"{HAMI} served several vocabularies" in outcome.stderr


def test_claims_of_a_pods_own_stay(tmp_path: Path) -> None:
    own = claim(exactly("nic", deviceClassName="nic"), name="own", namespace="team")
    document = legacy("a", gpu=1)
    document["spec"]["resourceClaims"] = [{"name": "nic", "resourceClaimName": "own"}]
    path = write(
        tmp_path / "day.json",
        [put(5, own), put(10, document), END],
        state=[plugin_node("node-a")],
    )

    # There is no such class, so its own claim is what keeps it from a node.
    assert counts(replay(path, "--migrated-at", "0"))[2] == {"invalidClaim": 1}
