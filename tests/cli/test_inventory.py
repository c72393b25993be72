"""`drawbridge inventory`: devices, free capacity, and the DeviceClasses for them."""

import json
from pathlib import Path

import pytest
from click.testing import Result

from kube.manifests.dump import dump_yaml
from testing.command import EXAMPLES, drawbridge
from testing.documents import Document, class_of_driver
from testing.questions import gpu, partition
from testing.simulated_cluster import DRIVER, STATE, device_class, holding, node, slice_of


def inventory(*state: Document, options: tuple[str, ...] = ()) -> Result:
    return drawbridge("inventory", "--snapshot", "-", *options, stdin=dump_yaml(state))


def inventory_answer(*state: Document) -> Document:
    result = inventory(*state, options=("-o", "json"))
    assert result.exit_code == 0, result.output
    document: Document = json.loads(result.stdout)
    return document


TAINTED = gpu("gpu-1", taints=[{"key": "ill", "effect": "NoExecute"}])


def test_devices_are_free_taken_or_tainted() -> None:
    held_claim = holding("held", "gpu-0", "node-a")
    slice_ = slice_of("node-a", gpu("gpu-0"), TAINTED, gpu("gpu-2"))

    (driver,) = inventory_answer(device_class(), node("node-a"), slice_, held_claim)["drivers"]

    assert driver == {
        "driver": DRIVER,
        "nodes": 1,
        "devices": 3,
        "allocated": 1,
        "shared": 0,
        "tainted": 1,
        "free": 1,
        "capacity": {"memory": {"total": "240Gi", "free": "80Gi", "largest": "80Gi"}},
        "counters": {},
    }


def test_shares_leave_the_rest_free() -> None:
    held_claim = holding("held", "gpu-0", "node-a")
    result = held_claim["status"]["allocation"]["devices"]["results"][0]
    result |= {"shareID": "a", "consumedCapacity": {"memory": "30Gi"}}
    slice_ = slice_of("node-a", gpu("gpu-0", allowMultipleAllocations=True))

    (driver,) = inventory_answer(node("node-a"), slice_, held_claim)["drivers"]

    assert (driver["allocated"], driver["shared"], driver["free"]) == (0, 1, 0)
    assert driver["capacity"] == {"memory": {"total": "80Gi", "free": "50Gi", "largest": "80Gi"}}


def test_classes_say_what_they_select() -> None:
    other = device_class("other")
    other["spec"]["selectors"][0]["cel"]["expression"] = "device.driver == 'other'"
    broken = device_class("broken")
    broken["spec"]["selectors"][0]["cel"]["expression"] = "device.drivr == ''"

    classes = inventory_answer(*STATE, other, broken)["classes"]

    assert [(entry["name"], entry["devices"], entry["drivers"]) for entry in classes] == [
        ("broken", 0, []),
        ("gpu", 4, [DRIVER]),
        ("other", 0, []),
    ]
    assert "CEL compile error" in classes[0]["error"]


def test_a_class_is_suggested_for_a_driver_without_one() -> None:
    assert inventory_answer(*STATE)["suggestions"] == []
    assert inventory_answer(*STATE[1:])["suggestions"] == [
        {"name": DRIVER, "expression": f'device.driver == "{DRIVER}"', "devices": 4}
    ]


def typed(name: str, kind: str, **attributes: str) -> Document:
    values = {"type": kind, **attributes}
    return {"name": name, "attributes": {key: {"string": text} for key, text in values.items()}}


SELECTS_TYPE = f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].?type.orValue("") == '


def test_a_class_is_suggested_for_a_type_that_shares_one() -> None:
    slice_ = slice_of("node-a", typed("a", "gpu"), typed("b", "mig"), typed("c", "mig"))
    apart = device_class("mig")
    apart["spec"]["selectors"][0]["cel"]["expression"] = f'{SELECTS_TYPE}"mig"'

    suggestions = inventory_answer(device_class(), apart, node("node-a"), slice_)["suggestions"]

    assert suggestions == [
        {"name": f"gpu.{DRIVER}", "expression": f'{SELECTS_TYPE}"gpu"', "devices": 1}
    ]


def test_a_class_is_suggested_for_each_product_and_mig_profile() -> None:
    slice_ = slice_of(
        "node-a",
        typed("a", "gpu", productName='Acme A-100 "big"'),
        typed("b", "gpu", productName="Acme B"),
        typed("c", "mig", productName="Acme A", profile="1g.10gb"),
        typed("d", "mig", productName="Acme A", profile="1g.10gb+me"),
    )

    suggestions = inventory_answer(device_class(), node("node-a"), slice_)["suggestions"]

    assert [(entry["name"], entry["devices"]) for entry in suggestions] == [
        (f"gpu.{DRIVER}", 2),
        (f"gpu-acme-a-100-big.{DRIVER}", 1),
        (f"gpu-acme-b.{DRIVER}", 1),
        (f"mig.{DRIVER}", 2),
        (f"mig-1g.10gb.{DRIVER}", 1),
        (f"mig-1g.10gb-me.{DRIVER}", 1),
    ]


def moded(*modes: str, **attributes: str) -> list[Document]:
    """Parts of devices with these modes, two parts of each device, and further attributes of all."""
    return [
        typed(
            f"gpu-{number}",
            "gpu",
            uuid=f"GPU-{number}",
            parentUUID=f"GPU-{number // 2}",
            partitioningMode=mode,
            **attributes,
        )
        for number, mode in enumerate(modes)
    ]


@pytest.mark.parametrize(
    ("devices", "want"),
    [
        (
            moded("None", "None", "MPS", productName="Acme"),
            {"gpu-acme-mps": 1, "gpu-acme-none": 2},
        ),
        (moded("None", "None", "MPS"), {"gpu-mps": 1, "gpu-none": 2}),
        (moded("None", "None", "None"), {}),
        (moded(*"aabcdefgh"), {"gpu-a": 2, **dict.fromkeys((f"gpu-{x}" for x in "bcdefgh"), 1)}),
        (moded(*"aabcdefghi"), {}),
        (moded("None", "MPS"), {}),
    ],
    ids=[
        *("of one product", "without a product", "of one mode"),
        *("of eight values", "of nine values", "of as many values as devices"),
    ],
)
def test_a_class_is_suggested_for_each_kind_of_one_product(
    devices: list[Document], want: dict[str, int]
) -> None:
    slice_ = slice_of("node-a", *devices)

    suggestions = inventory_answer(device_class(), node("node-a"), slice_)["suggestions"]

    assert want == {
        entry["name"].removesuffix(f".{DRIVER}"): entry["devices"] for entry in suggestions
    }


def test_parts_of_a_suggestion_are_selected_by_both_values() -> None:
    slice_ = slice_of("node-a", *moded("None", "None", "MPS", productName="Acme"))

    suggestions = inventory_answer(device_class(), node("node-a"), slice_)["suggestions"]

    (expression,) = (entry["expression"] for entry in suggestions if "mps" in entry["name"])
    attributes = f'device.attributes["{DRIVER}"]'
    assert expression == (
        f'{SELECTS_TYPE}"gpu" && {attributes}.?productName.orValue("") == "Acme" && '
        f'{attributes}.?partitioningMode.orValue("") == "MPS"'
    )


def test_a_suggested_name_is_not_that_of_another_class() -> None:
    device_class_ = device_class(f"mig.{DRIVER}")
    slice_ = slice_of("node-a", typed("a", "gpu"), typed("b", "mig"))

    suggestions = inventory_answer(device_class(), device_class_, node("node-a"), slice_)[
        "suggestions"
    ]

    assert [entry["name"] for entry in suggestions] == [f"gpu.{DRIVER}", f"all-mig.{DRIVER}"]


def test_no_class_is_suggested_for_devices_and_their_partitions_together() -> None:
    slice_ = slice_of("node-a", typed("a", "gpu"), typed("b", "mig"))

    names = [entry["name"] for entry in inventory_answer(node("node-a"), slice_)["suggestions"]]

    assert names == [f"gpu.{DRIVER}", f"mig.{DRIVER}"]


STATES = ("busy/cluster.yaml", "cluster", "compatibility", "koordinator/cluster.yaml", "nics")


@pytest.mark.parametrize("state", STATES)
def test_a_suggested_selector_selects_the_devices_that_it_was_made_for(
    state: str, tmp_path: Path
) -> None:
    def inventory_with(*more: object) -> Document:
        call = ("inventory", "--snapshot", EXAMPLES / state, *more, "-o", "json")
        document: Document = json.loads(drawbridge(*call).stdout)
        return document

    suggestions = inventory_with()["suggestions"]
    classes = [
        device_class(suggestion["name"])
        | {"spec": {"selectors": [{"cel": {"expression": suggestion["expression"]}}]}}
        for suggestion in suggestions
    ]
    (tmp_path / "classes.yaml").write_text(dump_yaml(classes) or "{}")
    after = inventory_with("-f", tmp_path / "classes.yaml") if classes else {"classes": []}

    selected = {
        class_["name"]: class_["devices"] for class_ in after["classes"] if not class_["error"]
    }
    assert {
        suggestion["name"]: suggestion["devices"] for suggestion in suggestions
    }.items() <= selected.items()
    assert [] == (after["suggestions"] if classes else [])


def test_partitions_of_a_published_device_count_its_memory_once() -> None:
    def part(name: str, parent: str) -> Document:
        return gpu(name, attributes={"parentUUID": {"string": parent}}) | {
            "capacity": {"memory": {"value": "20Gi"}}
        }

    whole = gpu("gpu-0", attributes={"uuid": {"string": "GPU-0"}})
    slice_ = slice_of("node-a", whole, part("mig-0", "GPU-0"), part("mig-1", "GPU-0"))
    apart = slice_of("node-b", part("mig-0", "GPU-1"))

    (driver,) = inventory_answer(
        node("node-a"), node("node-b"), slice_, apart, holding("held", "mig-1", "node-a")
    )["drivers"]

    assert driver["capacity"] == {"memory": {"total": "100Gi", "free": "80Gi", "largest": "80Gi"}}


def test_amounts_of_slots_are_hidden_unless_all_are_wanted() -> None:
    slots = {name: {"value": "1"} for name in ("memorySlice0", "memorySlice1")}
    device = {
        "name": "a",
        "capacity": {**slots, "encoders": {"value": "0"}, "cores": {"value": "2"}},
    }
    state = (node("node-a"), slice_of("node-a", device))

    text = inventory(*state).stdout

    assert "cores" in text
    assert "memorySlice0" not in text
    assert "3 amounts of 0 or 1 per device not shown; --all" in text
    assert "encoders" in inventory(*state, options=("--all",)).stdout


def test_devices_are_listed_with_what_a_class_can_select_them_by() -> None:
    attributes = {"model": {"string": "A"}, "numa": {"int": 0}, "x.y/z": {"bools": [True]}}
    slice_ = slice_of("node-a", gpu("gpu-0", attributes=attributes), TAINTED)
    state = (node("node-a"), slice_)

    assert inventory_answer(*state).get("devices") is None
    result = inventory(*state, options=("--devices", "-o", "json"))
    first, second = json.loads(result.stdout)["devices"]
    assert first == {
        "driver": DRIVER,
        "pool": "node-a",
        "name": "gpu-0",
        "node": "node-a",
        "state": "free",
        "attributes": {"model": "A", "numa": 0, "x.y/z": [True]},
        "capacity": {"memory": "80Gi"},
        "free": {"memory": "80Gi"},
        "consumers": [],
    }
    assert ("tainted", {"memory": "0"}) == (second["state"], second["free"])
    assert (
        f'  {DRIVER}/node-a/gpu-0, node node-a, free: model "A", numa 0, x.y/z [true], memory 80Gi'
    ) in " ".join(inventory(*state, options=("--devices",)).stdout.split("\n    ")).split("\n")


def sharing(name: str, device: str, amount: str) -> Document:
    claim = holding(name, device, "node-a")
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    result |= {"shareID": name, "consumedCapacity": {"memory": amount}}
    claim["status"]["reservedFor"] = [{"resource": "pods", "name": f"pod-{name}", "uid": "1"}]
    return claim


def test_a_device_has_what_is_free_and_who_uses_it() -> None:
    slice_ = slice_of("node-a", gpu("gpu-0", allowMultipleAllocations=True), gpu("gpu-1"))
    state = (
        *(node("node-a"), slice_, holding("whole", "gpu-1", "node-a")),
        *(sharing("one", "gpu-0", "30Gi"), sharing("two", "gpu-0", "10Gi")),
    )

    result = inventory(*state, options=("--devices", "-o", "json"))

    shared, whole = json.loads(result.stdout)["devices"]
    assert {"memory": "40Gi"} == shared["free"]
    assert [
        {
            "claim": "team/one",
            "request": "gpu",
            "pods": ["pod-one"],
            "consumed": {"memory": "30Gi"},
        },
        {
            "claim": "team/two",
            "request": "gpu",
            "pods": ["pod-two"],
            "consumed": {"memory": "10Gi"},
        },
    ] == shared["consumers"]
    assert {"memory": "0"} == whole["free"]
    (consumer,) = whole["consumers"]
    assert ("team/whole", [], None) == (consumer["claim"], consumer["pods"], consumer["consumed"])
    text = inventory(*state, options=("--devices",)).stdout
    assert "free: memory 40Gi" in text
    assert "used by claim team/one of pod pod-one" in text


def test_nodes_without_a_consumer() -> None:
    used = holding("whole", "gpu-1", "node-a")
    state = (node("node-a"), node("node-b"), node("bare"), slice_of("node-a"), slice_of("node-b"))

    result = inventory(*state, used, options=("--idle", "-o", "json"))

    assert [{"name": "node-b", "devices": 2}] == json.loads(result.stdout)["idleNodes"]
    assert "idleNodes" not in inventory_answer(*state, used)
    assert "Nodes without a consumer\n  node-b, 2 devices" in (
        inventory(*state, used, options=("--idle",)).stdout
    )
    busy = inventory(node("node-a"), slice_of("node-a"), used, options=("--idle",)).stdout
    assert "Nodes without a consumer\n  none" in busy


def test_a_namespace_is_refused() -> None:
    assert 2 == inventory(*STATE, options=("-n", "team")).exit_code


def test_pools_that_give_nothing_and_slices_that_nobody_sees_are_reported() -> None:
    slice_ = slice_of("node-a", pool={"name": "node-a", "generation": 1, "resourceSliceCount": 2})

    result = inventory(device_class(), node("node-a"), slice_, slice_of("node-z"))

    assert result.exit_code == 0
    assert "Pools that cannot be used\n  gpu.example.com, pool node-a: " in result.stdout
    assert "ResourceSlices that no node can reach\n  node-z-slice" in result.stdout


def test_the_text() -> None:
    assert inventory(*STATE).stdout.splitlines() == [
        "DRIVER           NODES  DEVICES  FREE  ALLOCATED  SHARED  TAINTED",
        "gpu.example.com  2      4        4     0          0       0",
        "",
        "DEVICECLASS  DEVICES  FREE  DRIVERS",
        "gpu          4        4     gpu.example.com",
    ]


def test_an_empty_cluster() -> None:
    assert inventory(node("node-a")).stdout == (
        "No devices are published.\n\nThere are no DeviceClasses.\n"
    )


def test_a_pool_that_gives_nothing_says_why() -> None:
    half = slice_of("node-a", pool={"name": "node-a", "generation": 1, "resourceSliceCount": 2})

    (broken,) = inventory_answer(device_class(), node("node-a"), half)["unusablePools"]

    assert (DRIVER, "node-a", "incomplete") == (broken["driver"], broken["pool"], broken["state"])


def test_a_pool_that_a_disabled_gate_hides_names_the_gate() -> None:
    grouped = partition("gpu-0", "mig", ["mig"])
    hidden = slice_of("node-a", grouped)

    (pool,) = inventory_answer(device_class(), node("node-a"), hidden)["unusablePools"]

    assert {
        "driver": DRIVER,
        "pool": "node-a",
        "state": "hidden",
        "why": "compatibilityGroups need feature gate DRADeviceCompatibilityGroups, which is off",
    } == pool


def plugged(name: str, **allocatable: str) -> Document:
    return node(name) | {"status": {"allocatable": {"nvidia.com/gpu": "2", **allocatable}}}


def test_a_resource_of_a_device_plugin_and_of_slices_is_reported() -> None:
    mapping = device_class()
    mapping["spec"]["extendedResourceName"] = "nvidia.com/gpu"
    state = [mapping, *(plugged(name) for name in ("node-a", "node-b")), *STATE[3:]]

    assert inventory_answer(*state)["duplicateResources"] == [
        {
            "node": name,
            "resource": "nvidia.com/gpu",
            "allocatable": "2",
            "drivers": [DRIVER],
            "devices": 2,
            "deviceClass": "gpu",
        }
        for name in ("node-a", "node-b")
    ]
    assert (
        "Resources that a device plugin and ResourceSlices offer on the same node"
        " nvidia.com/gpu on node-a, node-b: 2 by the device plugin, 2 devices by gpu.example.com"
        " (DeviceClass gpu). A device that both offer can be given to two pods: run only one of"
        " them on a node"
    ) in " ".join(inventory(*state).stdout.split())


def test_a_profile_connects_a_plugins_resource_with_a_driver() -> None:
    slice_ = slice_of("node-a", gpu("gpu-0"), driver="gpu.nvidia.com")

    (duplicate,) = inventory_answer(plugged("node-a"), slice_)["duplicateResources"]

    assert ("gpu.nvidia.com", "") == (duplicate["drivers"][0], duplicate["deviceClass"])


def test_a_class_that_maps_more_than_a_name_means_is_listed() -> None:
    driver = "gpu.nvidia.com"
    mig = {"type": {"string": "mig"}, "profile": {"string": "1g.5gb"}}
    slice_ = slice_of("node-a", {"name": "mig-0", "attributes": mig})
    slice_["spec"]["driver"] = driver
    mapping = class_of_driver(
        driver, name="mig.nvidia.com", extendedResourceName="nvidia.com/mig-3g.40gb"
    )

    (wide,) = inventory_answer(node("node-a"), slice_, mapping)["wideMappings"]
    text = inventory(node("node-a"), slice_, mapping).stdout

    assert (wide["resource"], wide["deviceClass"]) == ("nvidia.com/mig-3g.40gb", "mig.nvidia.com")
    assert "DeviceClasses that give other devices than the resource name means" in text


def test_an_inventory_without_wide_mappings_says_nothing_of_them() -> None:
    assert "wideMappings" not in inventory_answer(device_class(), node("node-a"))


def test_the_settings_of_the_cluster_say_which_driver_serves_a_name(tmp_path: Path) -> None:
    """A person chose gpu.example.com, so a plugin beside it hands out the same devices twice."""
    slice_ = slice_of("node-a", gpu("gpu-0"))
    slice_["spec"]["driver"] = "gpu.example.com"
    settings = tmp_path / "settings.yaml"
    settings.write_text("translation: {profiles: {nvidia: gpu.example.com}}\n")
    state = (plugged("node-a"), slice_)

    default = inventory_answer(*state)["duplicateResources"]
    result = inventory(*state, options=("-o", "json", "--settings", str(settings)))

    (duplicate,) = json.loads(result.stdout)["duplicateResources"]
    assert ([], ["gpu.example.com"]) == (default, duplicate["drivers"])


def test_what_device_plugins_offer_is_named_where_no_slice_is() -> None:
    """It was "No devices are published." on a cluster with hundreds of GPUs."""
    unrelated = {"cpu": "8", "example.com/licence": "2"}
    nodes = [
        node(name) | {"status": {"allocatable": {"nvidia.com/gpu": "8", **unrelated}}}
        for name in "ab"
    ]

    answer = inventory_answer(*nodes)
    text = inventory(*nodes).stdout

    assert answer["pluginResources"] == [
        {"resource": "nvidia.com/gpu", "nodes": 2, "allocatable": "16", "nodesInParts": 0}
    ]
    assert "Offered by device plugins\n  nvidia.com/gpu: 16 on 2 nodes\n" in text
