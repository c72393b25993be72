"""Themes of published objects: devices, pools in disorder, taints."""

import copy
from typing import Final

from testing.oracle.draft import GPU, Draft, Json, chosen_documents
from testing.oracle.themes.requests import NUMAS, constrain
from testing.oracle.themes.usage import allocated


def partitions(draft: Draft) -> None:
    """Devices that share counters: whole, half and quarter cards, as MIG has them."""
    plain = [
        pool
        for pool in draft.pools
        if not any("sharedCounters" in slice_["spec"] for slice_ in pool)
    ]
    for pool in draft.sample(plain, 0.4):
        _partition(draft, pool)


def _partition(draft: Draft, pool: list[Json], size_of_cards: int = 1) -> None:
    cards = draft.weighted({1: 60, 2: 40})
    spec = copy.deepcopy(pool[0]["spec"])
    spec.pop("devices", None)
    spec["sharedCounters"] = [
        {
            "name": f"card-{card}",
            "counters": _counters(f"{8 * size_of_cards}", f"{80 * size_of_cards}Gi"),
        }
        for card in range(cards)
    ]
    for index, device in enumerate(draft.devices(pool)):
        if draft.maybe(0.15):
            continue
        card = f"card-{index % cards}"
        size = draft.weighted({"whole": 15, "half": 35, "quarter": 50})
        device["consumesCounters"] = [{"counterSet": card, "counters": dict(_PROFILES[size])}]
        if cards > 1 and draft.maybe(0.1):
            other = f"card-{(index + 1) % cards}"
            device["consumesCounters"].append(
                {"counterSet": other, "counters": {"slices": {"value": "1"}}}
            )
    pool.append({"metadata": {"name": f"{pool[0]['metadata']['name']}-counters"}, "spec": spec})
    for slice_ in pool:
        slice_["spec"]["pool"]["resourceSliceCount"] = len(pool)


def _counters(slices: str, memory: str) -> Json:
    return {"slices": {"value": slices}, "memory": {"value": memory}}


_PROFILES: Final = {
    "whole": _counters("8", "80Gi"),
    "half": _counters("4", "40Gi"),
    "quarter": _counters("2", "20Gi"),
}


def groups(draft: Draft) -> None:
    """Devices that exclude each other on a counter set (KEP-5963)."""
    partitions(draft)
    draft.gates["DRADeviceCompatibilityGroups"] = draft.maybe(0.9)
    _group(draft, 0.8)


def _group(draft: Draft, chance: float) -> None:
    choices = (["mig"], ["mig"], ["vgpu"], ["mig", "vgpu"], ["mig", "mps"])
    for device in draft.devices():
        for consumption in device.get("consumesCounters", ()):
            if draft.maybe(chance):
                consumption["compatibilityGroups"] = list(draft.pick(choices))


def groups_over_hosts(draft: Draft) -> None:
    """A pool over several nodes with partitions that are held by nodes in turn, in any groups."""
    several_hosts(draft)
    draft.gates["DRADeviceCompatibilityGroups"] = True
    for pool in draft.pools:
        if pool[0]["spec"]["pool"]["name"] == "hosts":
            _partition(draft, pool, size_of_cards=8)
    _group(draft, 0.5)
    allocated(draft)


def capacity(draft: Draft) -> None:
    """Devices that several claims may share, and the amounts requested of them."""
    for device in draft.sample(draft.devices(), 0.7):
        device["allowMultipleAllocations"] = draft.maybe(0.9)
        device["capacity"] |= {"memory": {"value": "80Gi"}, "cores": {"value": "100"}}
        if device["allowMultipleAllocations"]:
            _share(draft, device)
    for request in draft.sample(draft.device_requests(), 0.8):
        amounts = {
            "memory": draft.pick(_MEMORY),
            "cores": draft.pick(("10", "25", "50", "60", "101")),
        }
        if draft.maybe(0.06):
            amounts["absent"] = "1"
        request["capacity"] = {"requests": dict(draft.sample(list(amounts.items())))}
        if draft.maybe(0.04):
            request["capacity"] = {}
    if draft.maybe(0.1):
        device = draft.pick(draft.devices())
        device["capacity"][f"{GPU}/memory"] = device["capacity"].pop("memory", {"value": "1"})
    if draft.maybe(0.3):
        selector = draft.pick(
            ("device.allowMultipleAllocations", "!device.allowMultipleAllocations")
        )
        draft.pick(draft.device_requests())["selectors"] = chosen_documents(selector)


_MEMORY: Final = ("1Gi", "10Gi", "16Gi", "20Gi", "30000Mi", "40Gi", "80Gi", "0")


def _share(draft: Draft, device: Json) -> None:
    """Give a device's capacities a policy."""
    memory: Json = draft.pick(
        (
            {},
            {"default": "10Gi"},
            {"default": "10Gi", "validValues": ["5Gi", "10Gi", "20Gi", "40Gi"]},
            {"default": "4Gi", "validRange": {"min": "4Gi", "step": "4Gi"}},
            {"default": "8Gi", "validRange": {"min": "2Gi", "max": "32Gi", "step": "2Gi"}},
            {"default": "2Gi", "validRange": {"min": "2Gi"}},
            {"default": "0"},
        )
    )
    cores: Json = draft.pick(
        ({}, {"default": "10"}, {"default": "20", "validRange": {"min": "5", "step": "5"}})
    )
    for key, policy in (("memory", memory), ("cores", cores)):
        if policy:
            device["capacity"][key]["requestPolicy"] = policy


def fractions(draft: Draft) -> None:
    """Amounts below one, with and without the gate for ranges of them."""
    if draft.maybe(0.6):
        draft.gates["DRAFractionalCapacityRange"] = True
    policies: tuple[Json, ...] = (
        {"default": "500m", "validRange": {"min": "200m", "max": "3", "step": "100m"}},
        {"default": "1", "validRange": {"min": "1", "max": "4", "step": "1"}},
        {"default": "1", "validRange": {"min": "500m"}},
        {"default": "1", "validRange": {"min": "-1"}},
        {"default": "250m", "validValues": ["250m", "500m", "2"]},
        {"default": "100m"},
        {},
    )
    for device in draft.sample(draft.devices(), 0.8):
        device["allowMultipleAllocations"] = True
        share: Json = {"value": draft.pick(("4", "2500m", "4"))}
        policy = draft.pick(policies)
        if (
            policy.get("validRange", {}).get("max") == "4"
            or "3" in policy.get("validRange", {}).values()
        ):
            share["value"] = "4"
        device["capacity"]["share"] = share | ({"requestPolicy": policy} if policy else {})
    for request in draft.sample(draft.device_requests(), 0.8):
        amount = draft.weighted(
            {
                "200m": 20,
                "250m": 20,
                "1500m": 20,
                "1": 20,
                "50m": 10,
                "3": 10,
                "100u": 2,
                "-1": 1,
                "9e18": 1,
            }
        )
        request.setdefault("capacity", {}).setdefault("requests", {})["share"] = amount


def lists(draft: Draft) -> None:
    """Attributes with several values."""
    draft.gates["DRAListTypeAttributes"] = draft.maybe(0.85)
    for device in draft.devices():
        if draft.maybe(0.9):
            values: Json = draft.pick(
                ({"ints": [0]}, {"ints": [0, 1]}, {"ints": [1, 2]}, {"int": 0}, {"int": 1})
            )
            device["attributes"][draft.pick((NUMAS, "numas"))] = dict(values)
    for claim in draft.sample(draft.claims):
        constrain(draft, claim, NUMAS)
    if draft.maybe(0.25):
        draft.pick(draft.device_requests())["selectors"] = chosen_documents(draft.pick(_OF_LISTS))


_NUMAS: Final = f'device.attributes["{GPU}"].numas'
_OF_LISTS: Final = (
    f'"numas" in device.attributes["{GPU}"] && {_NUMAS} == 0',
    f"has({_NUMAS}) && type({_NUMAS}) == list && {_NUMAS}.exists(n, n == 1)",
    f"has({_NUMAS}) && 1 in {_NUMAS}",
)


def tainted(draft: Draft) -> None:
    """Taints on devices, and requests that tolerate some."""
    for device in draft.sample(draft.devices(), 0.35):
        device["taints"] = [dict(taint) for taint in draft.sample(_TAINTS, 0.3)]
    tolerate(draft)


_TAINTS: Final[tuple[Json, ...]] = (
    {"key": "example.com/broken", "effect": "NoSchedule"},
    {"key": "example.com/for", "value": "tests", "effect": "NoExecute"},
    {"key": "example.com/slow", "value": "yes", "effect": "None"},
)

_TOLERATIONS: Final[tuple[Json, ...]] = (
    {"operator": "Exists"},
    {"key": "example.com/broken", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "example.com/for", "operator": "Equal", "value": "tests"},
    {"key": "example.com/for", "operator": "Equal", "value": "others"},
    {"key": "example.com/for", "operator": "Exists", "effect": "NoSchedule"},
    {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 10},
)


def tolerate(draft: Draft) -> None:
    """Let some of the requests tolerate some taints."""
    for request in draft.sample(draft.device_requests()):
        request["tolerations"] = [
            dict(toleration) for toleration in draft.sample(_TOLERATIONS, 0.25)
        ]


def taint_rules(draft: Draft) -> None:
    """Taints that an administrator lays on devices from outside."""
    for index in range(draft.weighted({1: 70, 2: 30})):
        tainted_slice = draft.pick(
            [slice_ for slice_ in draft.slices() if slice_["spec"].get("devices")]
        )
        selector = {
            "driver": tainted_slice["spec"]["driver"],
            "pool": tainted_slice["spec"]["pool"]["name"],
            "device": draft.pick(tainted_slice["spec"]["devices"])["name"],
        }
        spec: Json = {"taint": dict(draft.pick(_TAINTS))}
        if draft.maybe(0.95):
            spec["deviceSelector"] = dict(draft.sample(list(selector.items()), 0.75))
        draft.taint_rules.append({"metadata": {"name": f"rule-{index}"}, "spec": spec})
    if draft.maybe(0.5):
        tolerate(draft)
    if draft.maybe(0.1):
        draft.gates["DRADeviceTaintRules"] = False


def binding(draft: Draft) -> None:
    """Devices that must be made ready after they are chosen; their pools come last."""
    for pool in draft.sample(draft.pools, 0.4):
        for device in draft.sample(draft.devices(pool), 0.6):
            device["bindingConditions"] = draft.sample(
                ("example.com/attached", "example.com/ready")
            )
            device["bindingFailureConditions"] = ["example.com/failed"]
            if draft.maybe(0.5):
                device["bindsToNode"] = draft.maybe(0.8)


def node_operations(draft: Draft) -> None:
    """Slices with devices that need no preparation on the node."""
    draft.gates["DRAOptionalNodeOperations"] = draft.maybe(0.85)
    for node in draft.nodes:
        if draft.maybe(0.7):
            node["status"] = {"declaredFeatures": ["DRAOptionalNodeOperations"]}
    operations = (
        ["*"],
        ["NodeUnprepareResources"],
        ["NodePrepareResources", "NodeUnprepareResources"],
    )
    for device_slice in draft.sample(
        [slice_ for slice_ in draft.slices() if slice_["spec"].get("devices")]
    ):
        device_slice["spec"]["skipNodeOperations"] = list(draft.pick(operations))


def several_hosts(draft: Draft) -> None:
    """One pool with slices for several nodes, one of them perhaps without devices."""
    local = [pool for pool in draft.pools if "nodeName" in pool[0]["spec"]]
    same = [pool for pool in local if pool[0]["spec"]["driver"] == GPU]
    for number, pool in enumerate(same):
        for device in draft.devices(pool):
            device["name"] = f"h{number}-{device['name']}"
    slices = [slice_ for pool in same for slice_ in pool]
    if slices and draft.maybe(0.3):
        slices.append(_another(slices[0], "empty"))
        slices[-1]["spec"]["devices"] = []
    for slice_ in slices:
        slice_["spec"]["pool"] = {
            "name": "hosts",
            "generation": draft.weighted({2: 97, 3: 3}),
            "resourceSliceCount": len(slices),
        }
    draft.pools = [pool for pool in draft.pools if pool not in same] + ([slices] if slices else [])


def generations(draft: Draft) -> None:
    """Pools in the middle of an update: old slices still there, new ones not all."""
    for pool in draft.sample(draft.pools, 0.3):
        first = pool[0]
        old = _another(first, "old")
        old["spec"]["pool"] |= {
            "generation": 1,
            "resourceSliceCount": draft.weighted({1: 80, 2: 20}),
        }
        new = _another(first, "new")
        new["spec"]["pool"]["generation"] = 3
        if "nodeName" in new["spec"]:
            new["spec"]["nodeName"] = draft.pick(draft.nodes)["metadata"]["name"]
        pool.extend(draft.pick(([old], [old], [new], [old, new])))
        draft.rng.shuffle(pool)


def incomplete(draft: Draft) -> None:
    """Pools with fewer or more slices than they say."""
    for pool in draft.sample(draft.pools, 0.2):
        for slice_ in draft.sample(pool, 0.9):
            pool_ = slice_["spec"]["pool"]
            pool_["resourceSliceCount"] = max(
                1, pool_["resourceSliceCount"] + draft.pick((1, 1, -1))
            )
        if draft.maybe(0.3):
            pool.append(_another(pool[0], "more"))


def invalid(draft: Draft) -> None:
    """Pools with a device twice, or with counters that nobody defined."""
    pool = draft.pick(draft.pools)
    devices = draft.devices(pool)
    match draft.pick(("twice", "unknown set", "unknown counter", "two sets")):
        case "twice" if len(devices) > 1:
            devices[-1]["name"] = devices[0]["name"]
        case "unknown counter" if any("consumesCounters" in device for device in devices):
            consumer = draft.pick([device for device in devices if "consumesCounters" in device])
            consumer["consumesCounters"][0]["counters"]["nothing"] = {"value": "1"}
        case "two sets" if any("sharedCounters" in slice_["spec"] for slice_ in pool):
            for slice_ in pool:
                if "sharedCounters" in slice_["spec"]:
                    slice_["spec"]["sharedCounters"] *= 2
        case _:
            draft.pick(devices)["consumesCounters"] = [
                {"counterSet": "nothing", "counters": {"slices": {"value": "1"}}}
            ]


def _another(slice_: Json, suffix: str) -> Json:
    """A slice of the same pool under another name, with one device."""
    spec = copy.deepcopy(slice_["spec"])
    spec.pop("sharedCounters", None)
    spec["devices"] = spec.get("devices", [])[:1]
    for device in spec["devices"]:
        device["name"] += f"-{suffix}"
    return {"metadata": {"name": f"{slice_['metadata']['name']}-{suffix}"}, "spec": spec}
