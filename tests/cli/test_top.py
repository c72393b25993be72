"""`drawbridge top`: devices by user, and waiting pods."""

import json
import shlex
from collections.abc import Iterator

import click
import pytest
import yaml
from click.testing import Result

from cli.__main__ import main
from kube.manifests.dump import dump_yaml
from kube.manifests.reader import read_paths
from kube.quantity import ZERO, Quantity
from testing.builders import gpus, pod
from testing.command import CLUSTER, EXAMPLES, ROOT, drawbridge
from testing.command import answer as translated_pod
from testing.documents import Document, api_object
from testing.questions import gpu
from testing.simulated_cluster import DRIVER, claim, device_class, holding, node, slice_of, using


def top(*options: object, state: tuple[Document, ...]) -> Result:
    return drawbridge("top", "--snapshot", "-", *options, stdin=dump_yaml(state))


def answer(*options: object, state: tuple[Document, ...]) -> Document:
    result = top(*options, "-o", "json", state=state)
    assert result.exit_code == 0, result.stderr
    document: Document = json.loads(result.stdout)
    return document


def reserved(document: Document, *pods: str) -> Document:
    """A claim that pods use."""
    references = [{"resource": "pods", "name": name, "uid": name} for name in pods]
    return {**document, "status": {**document["status"], "reservedFor": references}}


def share(name: str, device: str, node_name: str, memory: str, namespace: str) -> Document:
    document = holding(name, device, node_name)
    result = document["status"]["allocation"]["devices"]["results"][0]
    result |= {"shareID": f"{name}-{namespace}", "consumedCapacity": {"memory": memory}}
    return {**document, "metadata": {"name": name, "namespace": namespace}}


def legacy(name: str, node_name: str | None, namespace: str = "old", **limits: int) -> Document:
    keys = {f"nvidia.com/{key}": amount for key, amount in limits.items()}
    spec = {"nodeName": node_name} if node_name else {}
    return api_object(
        "Pod",
        name,
        namespace,
        spec={"containers": [{"name": "main", "resources": {"limits": keys}}], **spec},
    )


def plugin_node(name: str, gpus: int) -> Document:
    return {**node(name), "status": {"allocatable": {"nvidia.com/gpu": str(gpus), "cpu": "8"}}}


STATE = (
    device_class(),
    node("node-a"),
    node("node-b"),
    plugin_node("old-1", 8),
    slice_of("node-a", gpu("gpu-0"), gpu("gpu-1")),
    slice_of("node-b", gpu("gpu-0", allowMultipleAllocations=True), gpu("gpu-1")),
    reserved(holding("whole", "gpu-0", "node-a"), "trainer"),
    holding("unused", "gpu-1", "node-a"),
    reserved(share("half", "gpu-0", "node-b", "30Gi", "lab"), "web"),
    reserved(share("part", "gpu-0", "node-b", "10Gi", "lab"), "web", "api"),
    using("trainer", "whole", nodeName="node-a"),
    using("waiter", "many"),
    claim("many", 9),
    *(
        {**using(name, nodeName="node-b"), "metadata": {"name": name, "namespace": "lab"}}
        for name in ("web", "api")
    ),
    legacy("notebook", "old-1", gpu=3, gpumem=4000),
    legacy("next", None, gpu=2),
    {**legacy("done", "old-1", gpu=3), "status": {"phase": "Succeeded"}},
)


def test_nodes_have_devices_in_use_and_in_total() -> None:
    nodes = answer("nodes", state=STATE)["nodes"]

    memory = {"largest": "80Gi"}
    first = {
        "driver": DRIVER,
        "devices": 2,
        "inUse": 2,
        "shares": 0,
        "capacity": {"memory": {"used": "160Gi", "total": "160Gi", **memory}},
        "counters": {},
    }
    second = {
        "driver": DRIVER,
        "devices": 2,
        "inUse": 1,
        "shares": 2,
        "capacity": {"memory": {"used": "40Gi", "total": "160Gi", **memory}},
        "counters": {},
    }
    plugin = {"resource": "nvidia.com/gpu", "used": "3", "total": "8"}
    assert nodes == [
        {"name": "node-a", "drivers": [first], "plugins": []},
        {"name": "node-b", "drivers": [second], "plugins": []},
        {"name": "old-1", "drivers": [], "plugins": [plugin]},
    ]


def test_namespaces_count_claims_and_pods_with_keys() -> None:
    namespaces = answer("ns", state=STATE)["namespaces"]

    def of(devices: int, shares: int, memory: str) -> list[Document]:
        capacity = {"memory": memory}
        return [
            {
                "driver": DRIVER,
                "devices": devices,
                "shares": shares,
                "capacity": capacity,
                "counters": {},
            }
        ]

    keys = {"nvidia.com/gpu": "3", "nvidia.com/gpumem": "4k"}
    assert namespaces == [
        {"name": "team", "pods": 1, "waiting": 1, "drivers": of(2, 0, "160Gi"), "plugins": {}},
        {"name": "lab", "pods": 2, "waiting": 0, "drivers": of(1, 2, "40Gi"), "plugins": {}},
        {"name": "old", "pods": 1, "waiting": 1, "drivers": [], "plugins": keys},
    ]


def test_pods_have_the_devices_of_their_claims() -> None:
    pods = answer("pods", state=STATE)["pods"]

    assert [(pod["namespace"], pod["name"], pod["node"], pod["claims"]) for pod in pods] == [
        ("lab", "api", "node-b", ["part"]),
        ("lab", "web", "node-b", ["half", "part"]),
        ("team", "trainer", "node-a", ["whole"]),
        ("old", "notebook", "old-1", []),
    ]
    assert pods[1]["drivers"][0]["capacity"] == {"memory": "40Gi"}


def test_pods_use_the_claims_that_they_name_where_nothing_is_reserved() -> None:
    """A recording of a simulation has allocations without reservations."""
    generated = {
        **using("web", nodeName="node-b"),
        "status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "web-gpu-x"}]},
    }
    generated["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    state = (
        device_class(),
        node("node-a"),
        node("node-b"),
        slice_of("node-a", gpu("gpu-0")),
        slice_of("node-b", gpu("gpu-0")),
        holding("whole", "gpu-0", "node-a"),
        holding("web-gpu-x", "gpu-0", "node-b"),
        using("trainer", "whole", nodeName="node-a"),
        using("waiter", "whole"),
        generated,
    )

    pods = answer("pods", state=state)["pods"]

    assert [(pod["name"], pod["claims"]) for pod in pods] == [
        ("trainer", ["whole"]),
        ("web", ["web-gpu-x"]),
    ]


def test_the_recording_of_the_examples_has_pods_that_use_devices() -> None:
    result = drawbridge("top", "--snapshot", EXAMPLES / "replay" / "recording.jsonl", "-o", "json")

    namespaces = json.loads(result.stdout)["namespaces"]
    assert [(entry["name"], entry["pods"]) for entry in namespaces] == [("default", 1)]


def test_what_is_not_counted_is_noted() -> None:
    without_slices = tuple(entry for entry in STATE if entry["kind"] != "ResourceSlice")

    result = top(state=without_slices)

    assert result.exit_code == 0
    assert (
        "note: not counted: 3 allocated devices that no known node has (gpu.example.com/node-a/gpu-0, "
        "gpu.example.com/node-a/gpu-1, gpu.example.com/node-b/gpu-0), of 4 claims and 3 pods; "
        "drawbridge inventory lists the devices that are published\n"
    ) in result.stderr
    assert "not counted" not in top(state=STATE).stderr
    assert "not counted" not in top("waiting", state=without_slices).stderr


def test_a_device_that_is_allocated_twice_is_noted() -> None:
    twice = holding("twice", "gpu-1", "node-b")
    results = twice["status"]["allocation"]["devices"]["results"]
    results.append(results[0])

    result = top(state=(*STATE, twice))

    assert (
        "note: counted more than once: 1 device allocated as a whole and again "
        "(gpu.example.com/node-b/gpu-1); drawbridge verify names the claims\n"
    ) in result.stderr


def test_devices_are_sorted_by_their_state() -> None:
    devices = answer("devices", state=STATE)["devices"]

    assert [
        (device["node"], device["name"], device["state"], device["shares"], device["claims"])
        for device in devices
    ] == [
        ("node-a", "gpu-0", "allocated", 0, ["team/whole"]),
        ("node-a", "gpu-1", "allocated", 0, ["team/unused"]),
        ("node-b", "gpu-0", "shared", 2, ["lab/half", "lab/part"]),
        ("node-b", "gpu-1", "free", 0, []),
    ]
    used = [device["capacity"]["memory"]["used"] for device in devices]
    assert used == ["80Gi", "80Gi", "40Gi", "0"]


def test_waiting_pods_have_their_reason() -> None:
    waiting = answer("waiting", state=STATE)["waiting"]

    by_pod = {group["pods"][0]: group["reason"] for group in waiting}
    assert by_pod.keys() == {"team/waiter", "old/next"}
    assert "1 node: 2/2 devices in use. 1 node: 1/2 devices" in by_pod["team/waiter"]
    assert not by_pod["old/next"]
    assert "drawbridge why pod next -n old" in top("waiting", state=STATE).stdout


def test_equal_waiting_pods_are_one_group_with_the_words_of_the_scheduler() -> None:
    message = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    condition = {"type": "PodScheduled", "status": "False", "message": message}
    pods = tuple(
        {**legacy(f"p{number}", None, gpu=2), "status": {"conditions": [condition]}}
        for number in range(5)
    )

    (group,) = answer("waiting", state=(plugin_node("old-1", 1), *pods))["waiting"]

    assert group == {"pods": [f"old/p{number}" for number in range(5)], "reason": message}
    text = top("waiting", state=(plugin_node("old-1", 1), *pods)).stdout
    assert text.splitlines() == [
        "Pods that wait for devices",
        "  5 pods: old/p0, old/p1, old/p2 and 2 more",
        f"    {message}",
    ]


def test_the_closest_fit_of_a_waiting_translated_pod_is_in_its_keys() -> None:
    cluster = [entry.document for entry in read_paths([str(CLUSTER)])]
    translated = translated_pod(pod(gpus(1, mem=200000)))["objects"]

    (group,) = answer("waiting", state=(*cluster, *translated))["waiting"]

    assert group["reason"].startswith(
        "Closest fit: write nvidia.com/gpumem: 81920 to fit node hami-1. "
    )


def test_a_partition_counts_in_its_counters() -> None:
    state = (
        device_class(),
        node("node-a"),
        *partition_slices(),
        holding("part", "gpu-0-a", "node-a"),
    )

    (entry,) = answer("nodes", state=state)["nodes"]

    (driver,) = entry["drivers"]
    assert (driver["inUse"], driver["capacity"]) == (1, {})
    (counter,) = driver["counters"].values()
    assert Quantity(counter["used"]) > ZERO
    assert Quantity(counter["used"]) < Quantity(counter["total"])


def partition_slices() -> tuple[Document, ...]:
    counters = [{"name": "gpu-0", "counters": {"memory": {"value": "80Gi"}}}]
    takes = [{"counterSet": "gpu-0", "counters": {"memory": {"value": "20Gi"}}}]
    devices = [gpu(f"gpu-0-{name}", consumesCounters=takes) for name in "ab"]
    with_counters = slice_of("node-a")
    with_counters["metadata"] = {"name": "counters"}
    with_counters["spec"] |= {"sharedCounters": counters}
    del with_counters["spec"]["devices"]
    slices = (with_counters, slice_of("node-a", *devices))
    for slice_ in slices:
        slice_["spec"]["pool"] = {**slice_["spec"]["pool"], "resourceSliceCount": 2}
    return slices


def test_what_namespaces_use_is_what_is_used_on_nodes() -> None:
    document = answer(state=STATE)

    on_nodes = sum(
        (
            Quantity(amount["used"])
            for entry in document["nodes"]
            for driver in entry["drivers"]
            for amount in driver["capacity"].values()
        ),
        ZERO,
    )
    of_namespaces = sum(
        (
            Quantity(amount)
            for entry in document["namespaces"]
            for driver in entry["drivers"]
            for amount in driver["capacity"].values()
        ),
        ZERO,
    )
    assert on_nodes == of_namespaces == Quantity("200Gi")


def test_an_extended_resource_that_a_class_maps_is_not_a_device_plugins() -> None:
    mapping = device_class()
    mapping["spec"]["extendedResourceName"] = "nvidia.com/gpu"
    state = (mapping, node("node-a"), slice_of("node-a"), legacy("native", "node-a", gpu=1))

    assert answer("pods", state=state)["pods"] == []
    assert answer("nodes", state=state)["nodes"][0]["plugins"] == []


def test_one_namespace() -> None:
    document = answer("-n", "lab", state=STATE)

    assert [entry["name"] for entry in document["namespaces"]] == ["lab"]
    assert document["waiting"] == []
    assert [pod["name"] for pod in answer("po", "-n", "lab", state=STATE)["pods"]] == [
        "api",
        "web",
    ]


def test_text() -> None:
    assert top(state=STATE).stdout.splitlines()[:9] == [
        "NODE    DEVICES OF       IN USE  SHARES  AMOUNTS IN USE",
        "node-a  gpu.example.com  2/2     0       memory 160Gi/160Gi",
        "node-b  gpu.example.com  1/2     2       memory 40Gi/160Gi",
        "old-1   nvidia.com/gpu   3/8     -",
        "",
        "NAMESPACE  PODS  WAITING  DEVICES OF         IN USE  SHARES  AMOUNTS IN USE",
        "team       1     1        gpu.example.com    2       0       memory 160Gi",
        "lab        2     0        gpu.example.com    1       2       memory 40Gi",
        "old        1     1        nvidia.com/gpu     3       -",
    ]


def test_nothing() -> None:
    state = (node("node-a"),)

    assert top(state=state).stdout == (
        "No node has devices.\n\nNo namespace uses devices.\n\nNo pod waits for devices.\n"
    )
    assert top("devices", state=state).stdout == "No devices are published.\n"
    assert top("pods", state=state).stdout == "No running pod uses devices.\n"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (("top", "gpus", "--snapshot", EXAMPLES / "busy"), "expected nodes, namespaces, pods"),
        (("top",), "No cluster is given"),
        (("top", "-o", "html", "--snapshot", EXAMPLES / "busy"), "'html' is not one of"),
    ],
)
def test_wrong_calls(call: tuple[object, ...], message: str) -> None:
    result = drawbridge(*call)

    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_hostile_names_are_escaped() -> None:
    pod = legacy("p", None, gpu=1)
    pod["metadata"]["name"] = "\x1b[31m"
    condition = {"type": "PodScheduled", "status": "False", "message": "\x1b]0;x\x07\n::error::"}
    pod["status"] = {"conditions": [condition]}

    result = top(state=(node("node-a"), pod))

    assert "\x1b" not in result.stdout
    assert not any(line.startswith("::") for line in result.stdout.splitlines())


# --- k9s ------------------------------------------------------------------------------------------

PLUGINS = yaml.load(
    (ROOT / "manifests" / "k9s" / "plugins.yaml").read_text(), Loader=yaml.CSafeLoader
)["plugins"]


def calls(plugin: Document) -> Iterator[list[str]]:
    """The calls of drawbridge in a plugin, with the selected object filled in."""
    option, script, _, *arguments = plugin["args"]
    assert option == "-c"
    filled = {
        "$RESOURCE_NAME": plugin["scopes"][0],
        "$NAME": "a",
        "$NAMESPACE": "team",
        "$CONTEXT": "c",
    }
    for number, argument in enumerate(arguments, start=1):
        script = script.replace(f'"${number}"', filled[argument])
    assert "$" not in script, "an argument is not given"
    for part in script.split("|"):
        words = shlex.split(part.replace("2>&1", ""))
        if words[0] == "drawbridge":
            yield words[1:]


@pytest.mark.parametrize("name", PLUGINS)
def test_the_commands_of_a_k9s_plugin_exist(name: str) -> None:
    (words,) = calls(PLUGINS[name])
    verb, *rest = words
    context = click.Context(main)
    command = main.get_command(context, verb)

    assert command is not None
    given = command.make_context(verb, rest, parent=context).params
    assert (given["live"], given["context"]) == (True, "c")


@pytest.mark.parametrize("scope", PLUGINS["drawbridge-why"]["scopes"])
def test_why_knows_the_scopes_of_its_plugin(scope: str) -> None:
    result = drawbridge("why", scope, "nobody", "--snapshot", EXAMPLES / "busy")

    assert result.exit_code == 2
    assert "nobody" in result.stderr


@pytest.mark.parametrize("scope", PLUGINS["drawbridge-top"]["scopes"])
def test_top_knows_the_scopes_of_its_plugin(scope: str) -> None:
    assert drawbridge("top", scope, "--snapshot", EXAMPLES / "busy").exit_code == 0


def test_plugins_have_keys_of_their_own() -> None:
    keys = [plugin["shortCut"] for plugin in PLUGINS.values()]

    assert len(set(keys)) == len(keys)
