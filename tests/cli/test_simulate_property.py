"""`drawbridge simulate --node` agrees with the allocator on any cluster.

The allocator itself is compared with upstream in tests/oracle; here everything around it is under
test: files read straight into views, gates by name, allocations as JSON.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from testing.command import drawbridge
from testing.long_runs import every_second
from testing.oracle.ours import verdicts
from testing.oracle.scenarios import Scenario, seeded_document
from testing.oracle.verdicts import BUDGET_EXHAUSTED, FATAL, FIT, Verdict, normal

pytestmark = pytest.mark.property

CHUNKS = 8
PER_CHUNK = 25
DRA = "resource.k8s.io/v1"
STATE = {
    "slices": (DRA, "ResourceSlice"),
    "classes": (DRA, "DeviceClass"),
    "allocated": (DRA, "ResourceClaim"),
    "nodes": ("v1", "Node"),
    "taintRules": (DRA, "DeviceTaintRule"),
}


def written(path: Path, objects: list[Any]) -> Path:
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    return path


def typed(documents: list[Any], api_version: str, kind: str) -> list[Any]:
    return [{"apiVersion": api_version, "kind": kind, **document} for document in documents]


def simulated(scenario: Scenario, node: str, folder: Path) -> Verdict:
    state = [
        typed_object
        for name, kind in STATE.items()
        for typed_object in typed(scenario.get(name) or [], *kind)
    ]
    claims = typed(scenario["claims"], DRA, "ResourceClaim")
    gates = ",".join(f"{gate}={on}" for gate, on in scenario["features"].items())

    result = drawbridge(
        *("simulate", "-f", written(folder / "claims.json", claims)),
        *("--snapshot", written(folder / "state.json", state)),
        *("--node", node, "--feature-gates", gates, "-o", "json"),
    )

    document = json.loads(result.stdout)
    (about,) = document["nodes"]
    assert about["name"] == node
    assert about["fits"] == (result.exit_code == 0)
    if document["error"] is not None:
        return Verdict(FATAL)
    if any(reason["code"] == "budgetExhausted" for reason in about["reasons"]):
        return Verdict(BUDGET_EXHAUSTED)
    if not about["fits"]:
        return Verdict("does not fit")
    # An allocation without anything in it is an empty object.
    return Verdict(FIT, normal([claim["allocation"] for claim in document["claims"]]))


@pytest.mark.parametrize("chunk", every_second(range(CHUNKS)))
def test_the_command_says_what_the_allocator_says(chunk: int, tmp_path: Path) -> None:
    compared = 0
    for seed in range(chunk * PER_CHUNK, (chunk + 1) * PER_CHUNK):
        scenario = seeded_document(seed)
        for node, verdict in verdicts(scenario).items():
            simulation = simulated(scenario, node, tmp_path)
            if BUDGET_EXHAUSTED in (verdict.end, simulation.end):
                continue
            want = verdict if verdict.end in (FIT, FATAL) else Verdict("does not fit")
            assert want.compared == simulation.compared, f"seed {seed}, node {node}"
            compared += 1

    assert compared > PER_CHUNK / 2
