"""`drawbridge inventory`: devices, what is free, and classes that are about nothing."""

import json
from typing import Any

from click.testing import Result

from kube.files import dump_yaml
from tests.cli.command import drawbridge
from tests.cli.test_simulate import DRIVER, STATE, device_class, holding, node, slice_of

Document = dict[str, Any]


def inventory(*state: Document, options: tuple[str, ...] = ()) -> Result:
    return drawbridge("inventory", "--snapshot", "-", *options, stdin=dump_yaml(state))


def said(*state: Document) -> Document:
    result = inventory(*state, options=("-o", "json"))
    assert result.exit_code == 0, result.output
    document: Document = json.loads(result.stdout)
    return document


def gpu(name: str, **fields: Any) -> Document:
    return {"name": name, "capacity": {"memory": {"value": "80Gi"}}, **fields}


TAINTED = gpu("gpu-1", taints=[{"key": "ill", "effect": "NoExecute"}])


def test_devices_are_free_taken_or_tainted() -> None:
    held = holding("held", "gpu-0", "node-a")
    published = slice_of("node-a", gpu("gpu-0"), TAINTED, gpu("gpu-2"))

    (driver,) = said(device_class(), node("node-a"), published, held)["drivers"]

    assert driver == {
        "driver": DRIVER,
        "nodes": 1,
        "devices": 3,
        "used": 1,
        "shared": 0,
        "tainted": 1,
        "free": 1,
        "capacity": {"memory": {"total": "240Gi", "free": "80Gi"}},
        "counters": {},
    }


def test_shares_leave_the_rest_free() -> None:
    held = holding("held", "gpu-0", "node-a")
    result = held["status"]["allocation"]["devices"]["results"][0]
    result |= {"shareID": "a", "consumedCapacity": {"memory": "30Gi"}}
    published = slice_of("node-a", gpu("gpu-0", allowMultipleAllocations=True))

    (driver,) = said(node("node-a"), published, held)["drivers"]

    assert (driver["used"], driver["shared"], driver["free"]) == (0, 1, 0)
    assert driver["capacity"] == {"memory": {"total": "80Gi", "free": "50Gi"}}


def test_classes_say_what_they_select() -> None:
    other = device_class("other")
    other["spec"]["selectors"][0]["cel"]["expression"] = "device.driver == 'other'"
    broken = device_class("broken")
    broken["spec"]["selectors"][0]["cel"]["expression"] = "device.drivr == ''"

    found = said(*STATE, other, broken)["classes"]

    assert [(each["name"], each["devices"], each["drivers"]) for each in found] == [
        ("broken", 0, []),
        ("gpu", 4, [DRIVER]),
        ("other", 0, []),
    ]
    assert "CEL compile error" in found[0]["error"]


def test_a_driver_without_a_class_is_worth_one() -> None:
    assert said(*STATE)["suggestions"] == []
    assert said(*STATE[1:])["suggestions"] == [
        {"name": DRIVER, "expression": f'device.driver == "{DRIVER}"', "devices": 4}
    ]


def test_a_type_of_device_that_shares_its_class_is_worth_one() -> None:
    def typed(name: str, kind: str) -> Document:
        return {"name": name, "attributes": {"type": {"string": kind}}}

    published = slice_of("node-a", typed("a", "gpu"), typed("b", "mig"), typed("c", "mig"))
    apart = device_class("mig")
    expression = f'device.attributes["{DRIVER}"].?type.orValue("") == "mig"'
    apart["spec"]["selectors"][0]["cel"]["expression"] = expression

    found = said(device_class(), apart, node("node-a"), published)["suggestions"]

    assert found == [
        {
            "name": f"gpu.{DRIVER}",
            "expression": (
                f'device.driver == "{DRIVER}" && '
                f'device.attributes["{DRIVER}"].?type.orValue("") == "gpu"'
            ),
            "devices": 1,
        }
    ]


def test_pools_that_give_nothing_and_slices_that_nobody_sees_are_told() -> None:
    halved = slice_of("node-a", pool={"name": "node-a", "generation": 1, "resourceSliceCount": 2})

    result = inventory(device_class(), node("node-a"), halved, slice_of("node-z"))

    assert result.exit_code == 0
    assert "Pools that give nothing\n  gpu.example.com, pool node-a: " in result.stdout
    assert "ResourceSlices that no node sees\n  node-z-slice" in result.stdout


def test_the_text() -> None:
    assert inventory(*STATE).stdout.splitlines() == [
        "DRIVER           NODES  DEVICES  FREE  TAKEN  SHARED  TAINTED",
        "gpu.example.com  2      4        4     0      0       0",
        "",
        "DEVICECLASS  DEVICES  FREE  OF",
        "gpu          4        4     gpu.example.com",
    ]


def test_an_empty_cluster() -> None:
    assert inventory(node("node-a")).stdout == (
        "No devices are published.\n\nThere are no DeviceClasses.\n"
    )


def test_a_pool_that_gives_nothing_says_why() -> None:
    half = slice_of("node-a", pool={"name": "node-a", "generation": 1, "resourceSliceCount": 2})

    (broken,) = said(device_class(), node("node-a"), half)["brokenPools"]

    assert (DRIVER, "node-a", "incomplete") == (broken["driver"], broken["pool"], broken["state"])
