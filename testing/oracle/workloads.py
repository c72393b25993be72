"""Large scenarios with their time measured on both sides: `python -m testing.oracle.workloads`.

Without arguments it lists them; with a name (and a size) it prints upstream's times, for example
`python -m testing.oracle.workloads varied 5000`. Who measures our side takes the same scenario from
`WORKLOADS`, so both have the same objects.

Homogeneous nodes: each has one slice of 8 GPUs with a uuid and a bus id of their own, on two PCIe
roots of four. One claim: two A100 with at least 40Gi on one root.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

from kube.api.resource import MAX_RESULTS
from testing.oracle.draft import GPU, ROOT, Json, chosen_documents, claim
from testing.oracle.go import Oracle
from testing.oracle.scenarios import Scenario

WORKERS: Final = 16
"""The number of workers of kube-scheduler."""

STABLE: Final[Scenario] = {
    "implementation": "stable",
    "features": {"DRAConsumableCapacity": False, "DRADeviceBindingConditions": False},
}
"""Added to a scenario: upstream's oldest implementation, which the gates of 1.37 do not choose."""

BUS: Final = "resource.kubernetes.io/pciBusID"
DEVICES_PER_NODE: Final = 8

# --- many nodes -----------------------------------------------------------------------------------


def free(nodes: int) -> Scenario:
    """Every device of every node is free: the claim fits everywhere."""
    return _cluster(nodes, lambda _: ())


def full(nodes: int) -> Scenario:
    """All devices but one of each node are held: the claim fits nowhere."""
    return _cluster(nodes, lambda _: range(1, DEVICES_PER_NODE))


def varied_document(nodes: int) -> Scenario:
    """A random half of the devices of each node is held: 256 states at most, on equal nodes."""

    def free_numbers(node: int) -> Iterable[int]:
        rng = Random(node)
        return [index for index in range(DEVICES_PER_NODE) if rng.random() < 0.5]

    return _cluster(nodes, free_numbers)


def different(nodes: int) -> Scenario:
    """Like `varied`, with device memory that differs on each node."""
    scenario = varied_document(nodes)
    for number, slice_ in enumerate(scenario["slices"]):
        for device in slice_["spec"]["devices"]:
            device["capacity"]["memory"]["value"] = f"{80 * 1024 + number}Mi"
    return scenario


def _cluster(nodes: int, allocated_gpus: Callable[[int], Iterable[int]]) -> Scenario:
    names = [f"node-{number:05d}" for number in range(nodes)]
    devices = {"requests": [_two_large()], "constraints": [{"matchAttribute": ROOT}]}
    return _scenario(
        names,
        [_slice(name, [_gpu(name, index) for index in range(DEVICES_PER_NODE)]) for name in names],
        [claim("wanted", devices)],
        [
            holder(name, index)
            for number, name in enumerate(names)
            for index in allocated_gpus(number)
        ],
    )


def _two_large() -> Json:
    text = (
        f'device.attributes["{GPU}"].model == "A100" && '
        f'device.capacity["{GPU}"].memory.compareTo(quantity("40Gi")) >= 0'
    )
    return _request("gpus", 2, text)


# --- one node -------------------------------------------------------------------------------------


def one_too_many(devices: int) -> Scenario:
    """Equal devices, and a claim for one more than there are. Upstream tries every subset."""
    return _node([_plain(index) for index in range(devices)], [_request("gpus", devices + 1)])


def one_too_many_by_claims(devices: int) -> Scenario:
    """Like `one_too_many`, by claims of the largest size allowed."""
    scenario = one_too_many(devices)
    counts = [min(MAX_RESULTS, devices + 1 - first) for first in range(0, devices + 1, MAX_RESULTS)]
    scenario["claims"] = [
        claim(f"claim-{number}", {"requests": [_request("gpus", count)]})
        for number, count in enumerate(counts)
    ]
    return scenario


def unmatched_document(devices: int) -> Scenario:
    """Two halves that differ in an attribute, and a claim for one more than a half, all alike."""
    half = devices // 2
    published_documents = [
        _plain(index) | {"attributes": {ROOT: {"string": f"pci{index // half}"}}}
        for index in range(devices)
    ]
    return _node(published_documents, [_request("gpus", half + 1)], [{"matchAttribute": ROOT}])


def alternatives(depth: int) -> Scenario:
    """Eight devices, four requests; each would rather have more devices than less, and at least 3."""
    requests = [
        {
            "name": f"r{number}",
            "firstAvailable": [
                {"name": f"s{count}"} | _exactly(count) for count in range(depth + 2, 2, -1)
            ],
        }
        for number in range(4)
    ]
    return _node([_plain(index) for index in range(8)], requests)


def batch(claims: int, spare: int = 0) -> Scenario:
    """So many claims for one device each, placed together on a node that has just enough.

    Args:
        spare: Devices more than that, or less.
    """
    scenario = _node([_plain(index) for index in range(claims + spare)], [])
    scenario["claims"] = [
        claim(f"claim-{number}", {"requests": [_request("gpu", 1)]}) for number in range(claims)
    ]
    return scenario


def costly(loops: int) -> Scenario:
    """A selector with so many loops within each other over the four domains of 64 devices."""
    domains = {f"{letter}.example.com/x": {"string": letter} for letter in "abcd"}
    text = "true"
    for number in range(loops):
        text = f"device.attributes.all(v{number}, v{number} != '' && {text})"
    devices = [_plain(index) | {"attributes": domains} for index in range(64)]
    return _node(devices, [_request("gpus", 2, text)])


_PLACEMENTS: Final[Mapping[str, tuple[int, Sequence[range]]]] = {
    "1g.10gb": (1, [range(start, start + 1) for start in range(7)]),
    "1g.20gb": (1, [range(start, start + 2) for start in (0, 2, 4, 6)]),
    "2g.20gb": (2, [range(start, start + 2) for start in (0, 2, 4)]),
    "3g.40gb": (3, [range(start, start + 4) for start in (0, 4)]),
    "4g.40gb": (4, [range(4)]),
    "7g.80gb": (7, [range(8)]),
    "1g.10gb.me": (1, [range(start, start + 1) for start in range(7)]),
}
"""Profile of a MIG device to its compute slices and the memory slices of each placement."""


def mig(gpus: int) -> Scenario:
    """GPUs with every MIG placement; half of them hold a 3g.40gb; asked are four of seven profiles."""
    slices = [_slice("node-00000", [], name="counters") for _ in range(1)]
    slices[0]["spec"] |= {"sharedCounters": [_whole(gpu) for gpu in range(gpus)]}
    del slices[0]["spec"]["devices"]
    slices += [
        _slice("node-00000", list(_placements(gpu)), name=f"gpu-{gpu}") for gpu in range(gpus)
    ]
    for slice_ in slices:
        slice_["spec"]["pool"]["resourceSliceCount"] = len(slices)
    requests = [
        _request(
            profile.replace(".", "-"), count, f'device.attributes["{GPU}"].profile == "{profile}"'
        )
        for profile, count in (
            ("7g.80gb", gpus // 4),
            ("3g.40gb", gpus),
            ("2g.20gb", gpus // 2),
            ("1g.10gb", gpus),
        )
    ]
    holders = [holder("node-00000", f"gpu-{gpu}-3g-40gb-4") for gpu in range(0, gpus, 2)]
    return _scenario(["node-00000"], slices, [claim("wanted", {"requests": requests})], holders)


def _whole(gpu: int) -> Json:
    memory = {f"memory-{index}": {"value": "1"} for index in range(8)}
    return {
        "name": f"gpu-{gpu}",
        "counters": {"compute": {"value": "7"}, "media": {"value": "1"}} | memory,
    }


def _placements(gpu: int) -> Iterable[Json]:
    for profile, (compute, places) in _PLACEMENTS.items():
        for place in places:
            used = {f"memory-{index}": {"value": "1"} for index in place}
            used["compute"] = {"value": str(compute)}
            if profile.endswith("me"):
                used["media"] = {"value": "1"}
            yield {
                "name": f"gpu-{gpu}-{profile.replace('.', '-')}-{place.start}",
                "attributes": {"profile": {"string": profile}},
                "consumesCounters": [{"counterSet": f"gpu-{gpu}", "counters": used}],
            }


# --- objects --------------------------------------------------------------------------------------


def _scenario(
    nodes: Sequence[str], slices: list[Json], claims: list[Json], allocated_claims: list[Json]
) -> Scenario:
    gpus = {
        "metadata": {"name": "gpu"},
        "spec": {"selectors": chosen_documents(f'device.driver == "{GPU}"')},
    }
    return {
        "slices": slices,
        "classes": [gpus],
        "allocated": allocated_claims,
        "claims": claims,
        "nodes": [{"metadata": {"name": name, "labels": {}}} for name in nodes],
    }


def _node(devices: list[Json], requests: list[Json], constraints: Sequence[Json] = ()) -> Scenario:
    """One node with these devices, in slices as large as they may be."""
    parts = [devices[start : start + 128] for start in range(0, len(devices), 128)]
    slices = [_slice("node-00000", part, name=f"part-{index}") for index, part in enumerate(parts)]
    for slice_ in slices:
        slice_["spec"]["pool"]["resourceSliceCount"] = len(slices)
    spec: Json = {"requests": requests}
    if constraints:
        spec["constraints"] = list(constraints)
    return _scenario(["node-00000"], slices, [claim("wanted", spec)], [])


def _slice(node: str, devices: list[Json], *, name: str = "gpus") -> Json:
    return {
        "metadata": {"name": f"{node}-{name}"},
        "spec": {
            "driver": GPU,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "nodeName": node,
            "devices": devices,
        },
    }


def _gpu(node: str, index: int) -> Json:
    return {
        "name": f"gpu-{index}",
        "attributes": {
            "model": {"string": "A100"},
            "index": {"int": index},
            "uuid": {"string": f"GPU-{node}-{index}"},
            BUS: {"string": f"0000:{index:02x}:00.0"},
            ROOT: {"string": f"pci0000:{index // 4:02x}"},
        },
        "capacity": {"memory": {"value": "80Gi"}},
    }


def _plain(index: int) -> Json:
    return {"name": f"gpu-{index:03d}", "attributes": {"index": {"int": index}}}


def _request(name: str, count: int, selector: str | None = None) -> Json:
    exactly = _exactly(count)
    if selector is not None:
        exactly["selectors"] = chosen_documents(selector)
    return {"name": name, "exactly": exactly}


def _exactly(count: int) -> Json:
    return {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}


def holder(node: str, device: int | str) -> Json:
    """A claim that holds one device of a node, by index or by name."""
    name = f"gpu-{device}" if isinstance(device, int) else device
    result = {"request": "gpu", "driver": GPU, "pool": node, "device": name}
    holder = claim(f"{node}-{name}", {"requests": []})
    return holder | {"status": {"allocation": {"devices": {"results": [result]}}}}


WORKLOADS: Final[Mapping[str, tuple[Callable[[int], Scenario], int]]] = {
    "free": (free, 5_000),
    "full": (full, 5_000),
    "varied": (varied_document, 5_000),
    "different": (different, 5_000),
    "one-too-many": (one_too_many, 10),
    "unmatched": (unmatched_document, 32),
    "alternatives": (alternatives, 6),
    "batch": (batch, 200),
    "costly": (costly, 4),
    "mig": (mig, 8),
}
"""Name to maker and usual size."""


def timed_upstream(
    oracle: Oracle, scenario: Scenario, *, workers: int = WORKERS, rounds: int = 2
) -> dict[str, Any]:
    """Return upstream's seconds per round, steps and ends; the first round compiles selectors."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "scenario.json"
        file.write_text(json.dumps(scenario))
        bench = {"file": str(file), "workers": workers, "rounds": rounds}
        (answer,) = oracle.ask([{"bench": bench}])
    if "error" in answer:
        raise ValueError(answer["error"])
    return dict(answer)


def main() -> None:
    """Print upstream's times for one workload, or the workloads there are."""
    if len(sys.argv) == 1:
        for name, (maker, size) in WORKLOADS.items():
            print(f"{name:<14}{size:>6}  {maker.__doc__}")
        return
    maker, usual = WORKLOADS[sys.argv[1]]
    size = int(sys.argv[2]) if len(sys.argv) > 2 else usual
    with Oracle() as oracle:
        print(json.dumps(timed_upstream(oracle, maker(size))))


if __name__ == "__main__":
    main()
