"""Settings of the validation and feature gates, in all of a command's answer."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import Result

from clusterstate.published_gates import FEATURE_GATES
from kube.api.urls import CONFIG_MAPS
from kube.manifests.dump import dump_yaml
from testing.builders import gpus, pod
from testing.command import CLUSTER, EXAMPLES, drawbridge
from testing.documents import NVIDIA, Document, api_object, claim, device_class, resource_slice
from testing.fake_api_server import FakeApiServer
from testing.kubeconfig import kubeconfig_of
from testing.simulated_cluster import DRIVER, holding, slice_of, using
from testing.simulated_cluster import claim as wanted_claim
from testing.simulated_cluster import device_class as simulated_class
from testing.simulated_cluster import node as simulated_node

DENIED: Final = EXAMPLES / "denied"
EIGHT: Final = ("-f", DENIED / "too-many.yaml", "--snapshot", DENIED / "cluster.yaml")
HAMI: Final = "hami-core-gpu.project-hami.io"
GATE: Final = "DRAConsumableCapacity"
OFF: Final = {"featureGates": {GATE: False}}
KEY: Final = "nvidia.com/gpu"
NATIVE_OFF: Final = ("--feature-gates", "DRAExtendedResource=false")
NATIVE: Final = (
    api_object("Node", "a"),
    device_class(f"device.driver == '{NVIDIA}'", name=NVIDIA, extendedResourceName=KEY),
    resource_slice({"name": "gpu-0"}, node="a", driver=NVIDIA),
)


def settings(folder: Path, validation: Mapping[str, Any]) -> tuple[str, Path]:
    """The flag with a file of settings."""
    file = folder / "settings.yaml"
    file.write_text(dump_yaml([{"validation": validation}]))
    return "--settings", file


def half() -> str:
    """A claim with a share of a GPU."""
    exactly = {"deviceClassName": HAMI, "capacity": {"requests": {"memory": "1000Mi"}}}
    document = claim({"name": "gpu", "exactly": exactly})
    return dump_yaml([{**document, "metadata": {"name": "half"}}])


def codes(result: Result) -> list[tuple[str, str]]:
    return [
        (finding["severity"], finding["code"]) for finding in json.loads(result.stdout)["findings"]
    ]


@pytest.mark.parametrize(
    ("flags", "is_on"),
    [((), False), (("--feature-gates", f"{GATE}=true"), True)],
    ids=["of the settings", "of the call"],
)
@pytest.mark.parametrize("verb", ["check", "simulate", "fix"])
def test_a_gate_of_the_settings_counts_unless_the_call_has_it(
    tmp_path: Path, verb: str, flags: tuple[str, ...], *, is_on: bool
) -> None:
    """Only the translation had the gates of the settings, and a flag could not turn them on."""
    call = (verb, "-f", "-", "--snapshot", CLUSTER, *settings(tmp_path, OFF), *flags)

    result = drawbridge(*call, stdin=half())

    text = " ".join(result.output.split())
    assert ("the feature gate DRAConsumableCapacity is off" in text) != is_on
    assert result.exit_code == (0 if is_on else 1)


def test_a_gate_of_the_call_counts_for_the_translation(tmp_path: Path) -> None:
    """A gate that is off in the settings stayed off for legacy keys."""
    share = dump_yaml([pod(gpus(1, mem=1000))])
    call = ("check", "-f", "-", "--snapshot", CLUSTER, *settings(tmp_path, OFF), "-o", "json")

    without = codes(drawbridge(*call, stdin=share))
    with_gate = codes(drawbridge(*call, "--feature-gates", f"{GATE}=true", stdin=share))

    assert ("error", "sharesNotSupported") in without
    assert ("error", "sharesNotSupported") not in with_gate


async def test_a_gate_that_the_controllers_found_out_counts_live(tmp_path: Path) -> None:
    """It counted for translations only."""
    metadata = {"name": "drawbridge-inventory", "namespace": "drawbridge-system"}
    gates = {FEATURE_GATES: json.dumps({GATE: False})}
    async with FakeApiServer() as server:
        server.put(CONFIG_MAPS, {"metadata": metadata, "data": gates})
        call = ("check", "-f", "-", "--live", "--kubeconfig", kubeconfig_of(server, tmp_path))
        flags = ("--context", "here", "-o", "json")
        result = await asyncio.to_thread(drawbridge, *call, *flags, stdin=half())

    assert ("error", "sharesNotSupported") in codes(result)


@pytest.mark.parametrize(
    ("validation", "expected"),
    [
        ({}, [("error", "exceedsLargestNode")] * 2),
        ({"enforcement": "warn"}, [("warning", "exceedsLargestNode")] * 2),
        ({"enforcement": "off"}, []),
        ({"drivers": {"gpu.example.com": "warn"}}, [("warning", "exceedsLargestNode")] * 2),
        ({"drivers": {"other.example.com": "off"}}, [("error", "exceedsLargestNode")] * 2),
    ],
    ids=str,
)
def test_check_enforces_verdicts_as_the_webhook_does(
    tmp_path: Path, validation: Mapping[str, Any], expected: list[tuple[str, str]]
) -> None:
    result = drawbridge("check", *EIGHT, *settings(tmp_path, validation), "-o", "json")

    assert codes(result) == expected
    assert result.exit_code == (1 if ("error", "exceedsLargestNode") in expected else 0)


def time_sliced(name: str, interval: str) -> Document:
    sharing = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": interval}}
    version = "resource.nvidia.com/v1beta1"
    parameters = {"apiVersion": version, "kind": "GpuConfig", "sharing": sharing}
    document = wanted_claim(name)
    document["spec"]["devices"]["config"] = [
        {"opaque": {"driver": DRIVER, "parameters": parameters}}
    ]
    return document


@pytest.mark.parametrize(
    ("drivers", "placed"), [((DRIVER,), ["node-a", None]), ((), ["node-a", "node-a"])]
)
def test_configurations_are_compared_for_the_drivers_that_the_settings_name(
    tmp_path: Path, drivers: tuple[str, ...], placed: list[str | None]
) -> None:
    cluster = tmp_path / "cluster.yaml"
    gpu = {"name": "gpu-0", "allowMultipleAllocations": True}
    state = [simulated_class(), simulated_node("node-a"), slice_of("node-a", gpu)]
    cluster.write_text(dump_yaml(state))
    flags = settings(tmp_path, {"uniformConfigDrivers": list(drivers)})
    claims = dump_yaml([time_sliced("a", "Short"), time_sliced("b", "Long")])

    call = ("-f", "-", "--snapshot", cluster, *flags, "-o", "json")

    result = drawbridge("simulate", *call, stdin=claims)
    check_codes = {code for _, code in codes(drawbridge("check", *call, stdin=claims))}

    assert [entry["node"] for entry in json.loads(result.stdout)["claims"]] == placed
    assert ("conflictingSharingConfig" in check_codes) == bool(drivers)


@pytest.mark.parametrize("verb", ["simulate", "why"])
@pytest.mark.parametrize("names", [[], ["aware"]], ids=["nobody", "its scheduler"])
def test_a_scheduler_that_the_settings_name_evaluates_policies(
    tmp_path: Path, verb: str, names: list[str]
) -> None:
    allows_none = {"name": "alone", "compatibleOnlyWith": {"cel": {"expression": "false"}}}
    policy = api_object(
        "DeviceCompatibilityPolicy",
        "alone",
        spec={"driver": DRIVER, "scope": "Pool", "rules": [allows_none]},
    )
    state = [
        simulated_node("node-a"),
        simulated_class(),
        slice_of("node-a", {"name": "gpu-0"}, {"name": "gpu-1"}),
        holding("held", "gpu-0", "node-a"),
        wanted_claim("wanted"),
        policy,
    ]
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(dump_yaml(state))
    trainer = dump_yaml([using("trainer", "wanted", schedulerName="aware")])
    flags = settings(tmp_path, {"policyAwareSchedulers": names})

    result = drawbridge(verb, "-f", "-", "--snapshot", cluster, *flags, "-o", "json", stdin=trainer)

    answer = json.loads(result.stdout)
    (placed,) = answer["pods"] if verb == "simulate" else answer["simulation"]["pods"]
    assert (placed["node"] is None) == bool(names)


@pytest.mark.parametrize("is_manifest", [True, False], ids=["new", "of the cluster"])
def test_why_has_the_gates_of_the_settings(tmp_path: Path, *, is_manifest: bool) -> None:
    cluster, file = tmp_path / "cluster.yaml", tmp_path / "claim.yaml"
    file.write_text(half())
    cluster.write_text(CLUSTER.read_text(encoding="utf-8") + "\n---\n" + half())
    flags = settings(tmp_path, OFF)
    source = ("-f", file, "--snapshot", CLUSTER) if is_manifest else ("--snapshot", cluster)

    (with_gate,), (without,) = (
        json.loads(drawbridge("why", "claim", "half", *source, *more, "-o", "json").stdout)[
            "simulation"
        ]["claims"]
        for more in ((), flags)
    )

    assert (with_gate["node"] is None, without["node"] is None) == (False, True)


@pytest.mark.parametrize("verb", ["why", "simulate"])
def test_a_key_is_translated_where_the_gate_for_its_class_is_off(tmp_path: Path, verb: str) -> None:
    """`why` left the key to a class that the gate keeps from having it."""
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(dump_yaml(NATIVE))

    result = drawbridge(
        verb, "-f", "-", "--snapshot", cluster, *NATIVE_OFF, stdin=dump_yaml([pod(gpus(1))])
    )

    assert "allocated claim train-gpu" in result.stdout


def test_top_knows_no_class_for_a_key_where_the_gate_is_off(tmp_path: Path) -> None:
    """It had the closest fit of claims that the pod does not get."""
    cluster = tmp_path / "cluster.yaml"
    waiting = pod(gpus(5))
    cluster.write_text(dump_yaml((*NATIVE, waiting)))

    outputs = [
        drawbridge("top", "waiting", "--snapshot", cluster, *flags).stdout
        for flags in ((), NATIVE_OFF)
    ]

    assert ["Closest fit" in output for output in outputs] == [True, False]
