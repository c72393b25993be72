"""Commands that audits found at fault: each of these gave another answer once."""

from pathlib import Path
from typing import Any, Final

import pytest

from testing import documents
from testing.builders import container, gpus, pod
from testing.documents import namespace, node
from testing.migration import GPU, daemon_set, hami_node, workload
from testing.plan import call, document, planned
from testing.questions import answer
from testing.simulated_cluster import device_class, simulate, slice_of

SMALL: Final = "nvidia.com/mig-1g.10gb"
LARGE: Final = "nvidia.com/mig-3g.40gb"


def _mig_node(name: str, profile: str) -> dict[str, Any]:
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100", "nvidia.com/cuda.driver.major": "580"}
    return node(name, {f"nvidia.com/mig-{profile}": "2"}, labels, {})


def test_no_script_maps_two_profiles_by_the_class_of_all_mig_devices(tmp_path: Path) -> None:
    """The pod that asked for 3g.40gb got a 1g.5gb: of two mappings of one class the last wins."""
    nodes = [_mig_node(f"small-{number}", "1g.10gb") for number in range(3)]
    nodes += [_mig_node(f"large-{number}", "3g.40gb") for number in range(3)]
    teams = [
        *workload("small", {SMALL: "1"}, ["small-0"]),
        *workload("large", {LARGE: "1"}, ["large-0"]),
    ]
    plugin = daemon_set("nvidia-device-plugin")

    plan = planned(tmp_path, [*nodes, namespace("team"), plugin, *teams], "--wave-nodes", 2)

    assert {} == plan["mappedClasses"]
    assert "extendedResourceName" not in (tmp_path / "plan" / "prepare.sh").read_text()


def test_three_nodes_of_one_namespace_are_never_held_with_one_switched(tmp_path: Path) -> None:
    """The only free node was switched, the others were held, and nobody could use it."""
    nodes = [hami_node(name, 1) for name in ("h0", "h1", "h2")]
    full = {GPU: "1", "nvidia.com/gpumem": "40960"}
    teams = [*workload("a", full, ["h0"]), *workload("b", full, ["h1"])]

    call(tmp_path, [*nodes, namespace("team"), *teams], "--wave-nodes", 1)

    waves = document(tmp_path)["waves"]
    users = [wave["namespaces"] or wave["partialNamespaces"] for wave in waves]
    assert not waves or any(users), "no node is switched for nobody"


@pytest.mark.parametrize(
    ("flags", "codes"),
    [
        ((), set()),
        (("--feature-gates", "DRAConsumableCapacity=false"), {"sharesNotSupported"}),
    ],
    ids=["on", "off"],
)
def test_check_knows_the_gate_without_which_shares_are_whole_devices(
    flags: tuple[str, ...], codes: set[str]
) -> None:
    findings = answer(pod(gpus(1, mem=3000)), options=flags)["findings"]

    assert codes == {entry["code"] for entry in findings if entry["severity"] == "error"}


def test_check_tells_of_a_field_that_pods_do_not_have() -> None:
    """`limit` for `limits` asks for no GPU at all, and check had no finding."""
    legacy = pod({})
    legacy["spec"]["containers"][0]["resources"] = {"limit": {"nvidia.com/gpumem": "3000"}}

    (finding,) = [entry for entry in answer(legacy)["findings"] if entry["code"] == "unknownField"]

    assert "limits" in finding["fix"] + finding["message"]


@pytest.mark.parametrize(("gate", "exit_code"), [("true", 0), ("false", 1)])
def test_no_class_serves_a_resource_name_without_its_gate(gate: str, exit_code: int) -> None:
    """With the gate off check, simulate and `why` said that Kubernetes serves the pod by its class."""
    fpga = "example.com/fpga"
    mapping = device_class()
    mapping["spec"]["extendedResourceName"] = fpga
    state = (node("node-a", {"cpu": "4", "pods": "10"}), mapping, slice_of("node-a"))
    gates = ("--feature-gates", f"DRAExtendedResource={gate}")

    wanted = pod(container(resources={"limits": {fpga: "1"}}))
    placed = simulate(wanted, snapshot=state, options=gates)

    assert exit_code == placed.exit_code, placed.output
    codes = [entry["code"] for entry in answer(mapping, options=gates)["findings"]]
    assert ("featureGateOff" in codes) is (gate == "false")


@pytest.mark.parametrize("mode", ["nvidia.com/vgpu-mode", "volcano.sh/vgpu-mode"])
def test_two_mig_devices_of_two_profiles_serve_a_pod(mode: str) -> None:
    """HAMi and Volcano take of each GPU the smallest profile that is free there; the claim had one size for both."""
    devices = [
        {
            "name": f"gpu-{index}-mig",
            "attributes": {"type": {"string": "mig"}, "profile": {"string": profile}},
            "capacity": {"memory": {"value": memory}},
        }
        for index, (profile, memory) in enumerate((("3g.20gb", "19968Mi"), ("2g.10gb", "9728Mi")))
    ]
    mig_class = documents.device_class(
        'device.driver == "gpu.nvidia.com" && device.attributes["gpu.nvidia.com"].type == "mig"',
        name="mig.nvidia.com",
    )
    state = (
        node("node-a", {"cpu": "4", "pods": "10"}),
        mig_class,
        slice_of("node-a", *devices, driver="gpu.nvidia.com"),
    )
    amounts = {"volcano.sh/vgpu-number": 2, "volcano.sh/vgpu-memory": 8000}
    main = gpus(2, mem=8000) if mode.startswith("nvidia") else container("main", amounts)

    placed = simulate(pod(main, annotations={mode: "mig"}), snapshot=state)

    assert placed.exit_code == 0, placed.output
