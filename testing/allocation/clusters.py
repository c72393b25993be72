"""Random clusters for laws of the allocator, made of the oracle's scenarios."""

import copy
import json
from collections.abc import Callable
from random import Random
from typing import Final

from testing.oracle.draft import Json
from testing.oracle.ours import Objects, objects
from testing.oracle.scenarios import Scenario, seeded_document

COPIES: Final = 4


def world(seed: int) -> Objects:
    """Return the objects of one scenario."""
    return objects(seeded_document(seed))


def crowd(seed: int) -> Objects:
    """Return a scenario with copies of its first node, one of them different in a single thing.

    Copies have names, pools and claims of their own, and are equal in everything that counts; so
    they are of one class, and the odd one must not be unless the difference does not count.
    """
    scenario = copy.deepcopy(seeded_document(seed))
    rng = Random(seed)
    first = scenario["nodes"][0]["metadata"]["name"]
    local = [slice_ for slice_ in scenario["slices"] if slice_["spec"].get("nodeName") == first]
    # Slices of these pools that others can see tie the node to its name.
    pools = {(slice_["spec"]["driver"], slice_["spec"]["pool"]["name"]) for slice_ in local}
    for number in range(COPIES):
        name = f"copy-{number}"
        node = copy.deepcopy(scenario["nodes"][0])
        node["metadata"]["name"] = name
        scenario["nodes"].append(node)
        scenario["slices"] += [_moved_document(slice_, name) for slice_ in local]
        scenario["allocated"] += [
            _held_elsewhere(claim, pools, name)
            for claim in list(scenario["allocated"])
            if _holds(claim, pools)
        ]
    _make_odd(scenario, f"copy-{rng.randrange(COPIES)}", rng)
    return objects(scenario)


def _moved_document(slice_: Json, name: str) -> Json:
    copy_ = copy.deepcopy(slice_)
    copy_["metadata"]["name"] = f"{slice_['metadata']['name']}-{name}"
    copy_["spec"]["nodeName"] = name
    copy_["spec"]["pool"]["name"] = f"{slice_['spec']['pool']['name']}-{name}"
    return copy_


def _holds(claim: Json, pools: set[tuple[str, str]]) -> bool:
    if claim["metadata"]["name"].startswith("copy-"):
        return False
    return any(
        (result["driver"], result["pool"]) in pools
        for result in claim["status"]["allocation"]["devices"].get("results") or ()
    )


def _held_elsewhere(claim: Json, pools: set[tuple[str, str]], name: str) -> Json:
    copy_ = copy.deepcopy(claim)
    copy_["metadata"]["name"] = f"{name}-{claim['metadata']['name']}"
    devices = copy_["status"]["allocation"]["devices"]
    devices["results"] = [
        result | {"pool": f"{result['pool']}-{name}"}
        for result in devices["results"]
        if (result["driver"], result["pool"]) in pools
    ]
    return copy_


def _make_odd(scenario: Scenario, name: str, rng: Random) -> None:
    """Change one thing of one copy: a published device, an allocation, or the node."""
    mine = [slice_ for slice_ in scenario["slices"] if slice_["spec"].get("nodeName") == name]
    devices = [device for slice_ in mine for device in slice_["spec"].get("devices") or ()]
    changes: list[Callable[[Json], None]] = [
        lambda device: device.setdefault("attributes", {}).update(numa={"int": 7}),
        lambda device: device.setdefault("attributes", {}).pop("healthy", None),
        lambda device: device.setdefault("taints", []).append(
            {"key": "odd", "effect": rng.choice(("NoSchedule", "None", "NoExecute"))}
        ),
        lambda device: device.setdefault("attributes", {}).update(
            {"resource.kubernetes.io/pcieRoot": {"string": "odd"}}
        ),
        lambda device: device.update(allowMultipleAllocations=True),
        lambda device: device.pop("consumesCounters", None),
        lambda device: device.setdefault("capacity", {}).update(memory={"value": "1Gi"}),
        lambda device: scenario["allocated"].append(_consumer(mine, device)),
    ]
    if devices:
        rng.choice(changes)(rng.choice(devices))


def _consumer(slices: list[Json], device: Json) -> Json:
    spec = next(
        slice_["spec"] for slice_ in slices if device in (slice_["spec"].get("devices") or ())
    )
    result_ = {
        "request": "r",
        "driver": spec["driver"],
        "pool": spec["pool"]["name"],
        "device": device["name"],
    }
    claim = {
        "metadata": {"name": "odd", "namespace": "default"},
        "spec": {"devices": {"requests": []}},
        "status": {"allocation": {"devices": {"results": [result_]}}},
    }
    return dict(json.loads(json.dumps(claim)))
