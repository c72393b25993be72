"""Themes of what is asked: selectors, modes, alternatives, constraints, configuration."""

from typing import Final

from testing.oracle.draft import (
    BARE_SELECTORS,
    BROKEN_SELECTORS,
    GPU,
    NIC,
    ROOT,
    SELECTORS,
    Draft,
    Json,
    chosen,
    claim,
)

CONSTRAINED: Final = (ROOT, f"{GPU}/numa", f"{GPU}/model", f"{GPU}/healthy", f"{GPU}/driverVersion")
"""Attributes with few values."""

NUMAS: Final = f"{GPU}/numas"
"""An attribute with lists of values."""

DERIVED: Final = "derived.example.com/group"


def selectors(draft: Draft) -> None:
    """Selectors in classes and requests, as careful as people write them."""
    careless = draft.maybe(0.75)
    for asked in draft.some(draft.asked(), 0.6):
        texts = draft.some(SELECTORS, 0.1)
        if careless and draft.maybe(0.5):
            texts.insert(draft.rng.randrange(len(texts) + 1), draft.one(BARE_SELECTORS))
        asked["selectors"] = chosen(*texts)
    if draft.maybe(0.3):
        draft.one(draft.classes)["spec"]["selectors"] += chosen(draft.one(SELECTORS))


def broken_selectors(draft: Draft) -> None:
    """Selectors that end the attempt where they are evaluated."""
    asked = draft.one(draft.asked())
    text = draft.one(BROKEN_SELECTORS)
    guard = draft.one((SELECTORS[1], SELECTORS[3], f'device.driver == "{NIC}"'))
    asked["selectors"] = chosen(guard, text) if draft.maybe(0.7) else chosen(text)


def all_devices(draft: Draft) -> None:
    """Requests for all devices that match."""
    for asked in draft.some(draft.asked(), 0.2):
        asked["allocationMode"] = "All"
        del asked["count"]
        if draft.maybe(0.5):
            asked["selectors"] = chosen(draft.one(SELECTORS))


def alternatives(draft: Draft) -> None:
    """Requests with a list of alternatives, the best first."""
    for _, request in draft.some(draft.requests(), 0.5):
        if "exactly" not in request:
            continue
        first = {
            key: value for key, value in request.pop("exactly").items() if key != "adminAccess"
        }
        many = draft.weighted({1: 10, 2: 50, 3: 30, 8: 10})
        others = [draft.exactly() for _ in range(many - 1)]
        if draft.maybe(0.7) and "count" in first:
            first["count"] += draft.one((1, 2, 4))
        request["firstAvailable"] = [
            {"name": f"s{index}"} | one for index, one in enumerate([first, *others])
        ]


def admin(draft: Draft) -> None:
    """Requests that look at devices whoever holds them."""
    for _, request in draft.some(draft.requests(), 0.4):
        if "exactly" in request:
            request["exactly"]["adminAccess"] = draft.maybe(0.9)


def matching(draft: Draft) -> None:
    """Devices that must be alike."""
    for one in draft.some(draft.claims, 0.7):
        constrain(draft, one, draft.one(CONSTRAINED), kind="matchAttribute")


def distinct(draft: Draft) -> None:
    """Devices that must differ."""
    for one in draft.some(draft.claims, 0.7):
        constrain(
            draft, one, draft.one((*CONSTRAINED, *[f"{GPU}/index"] * 5)), kind="distinctAttribute"
        )


def constrain(draft: Draft, one: Json, attribute: str, kind: str | None = None) -> None:
    """Add a constraint on some of a claim's requests."""
    kind = kind or draft.weighted({"matchAttribute": 70, "distinctAttribute": 30})
    constraint: Json = {kind: attribute}
    if draft.maybe(0.4):
        constraint["requests"] = references(draft, one)
    if draft.maybe(0.03):
        constraint |= {"matchAttribute": attribute, "distinctAttribute": attribute}
    one["spec"]["devices"].setdefault("constraints", []).append(constraint)


def references(draft: Draft, one: Json) -> list[str]:
    """Some requests of a claim, or some of their alternatives, as `request/alternative`."""
    names: list[str] = []
    for request in draft.some(one["spec"]["devices"]["requests"], 0.6):
        alternative = [sub["name"] for sub in request.get("firstAvailable", ())]
        if alternative and draft.maybe(0.5):
            names += [f"{request['name']}/{sub}" for sub in draft.some(alternative)]
        else:
            names.append(request["name"])
    return names


def derived(draft: Draft) -> None:
    """Attributes that a request computes, for a constraint."""
    draft.gates["DRADerivedAttributes"] = draft.maybe(0.96)
    name = draft.weighted({DERIVED: 70, f"{GPU}/numa": 20, ROOT: 10})
    expressions = (
        f'device.attributes["{GPU}"].?numa.orValue(0)',
        f'device.attributes["{GPU}"].?index.orValue(0) / 2',
        f'device.attributes["{GPU}"].?model.orValue("none")',
        'device.driver == "gpu.example.com"',
        '"same"',
        "[1, 2]",
        f'device.attributes["{GPU}"].?healthy.orValue(true) ? ["a", "b"] : ["b", "c"]',
        f'device.attributes["{GPU}"].?driverVersion.orValue(semver("1.2.0"))',
    )
    for one in draft.some(draft.claims, 0.7):
        expression = draft.one(expressions)
        for request in draft.some(one["spec"]["devices"]["requests"], 0.9):
            for asked in (
                [request["exactly"]] if "exactly" in request else request["firstAvailable"]
            ):
                text = expression if draft.maybe(0.8) else draft.one(expressions)
                if draft.maybe(0.08):
                    missing = draft.one(("nothing", "model", "numa", "driverVersion"))
                    text = f'device.attributes["{GPU}"].{missing}'
                asked["derivedAttributes"] = [{"name": name, "expression": text}]
        constrain(draft, one, name)


def configs(draft: Draft) -> None:
    """Configuration from classes and claims."""
    for index, device_class in enumerate(draft.classes):
        if draft.maybe(0.6):
            device_class["spec"]["config"] = [
                _config(f"class-{index}-{k}") for k in range(draft.one((1, 1, 2)))
            ]
    for index, claim_ in enumerate(draft.claims):
        entries = [_config(f"claim-{index}-{k}") for k in range(draft.one((0, 1, 2, 3)))]
        for entry in entries:
            if draft.maybe(0.6):
                entry["requests"] = references(draft, claim_)
        if entries:
            claim_["spec"]["devices"]["config"] = entries


def _config(name: str) -> Json:
    return {"opaque": {"driver": GPU, "parameters": {"kind": "Tuning", "name": name}}}


def limits(draft: Draft) -> None:
    """More devices than a claim may have, or nearly."""
    if draft.maybe(0.5):
        pool = draft.one(draft.pools)
        last = [one for one in pool if one["spec"].get("devices")][-1]
        last["spec"]["devices"] += [
            {"name": f"more-{index}", "attributes": {"model": {"string": "A100"}}, "capacity": {}}
            for index in range(draft.one((20, 30, 40)))
        ]
    _, request = draft.one(draft.requests())
    counts = {16: 10, 20: 10, 31: 10, 32: 20, 33: 15, 500: 10, 2**63 - 1: 10}
    if "exactly" in request:
        if draft.maybe(0.7):
            first = request.pop("exactly") | {"name": "s0"}
            first.pop("adminAccess", None)
            request["firstAvailable"] = [first, {"name": "s1"} | draft.exactly()]
        else:
            counts = {16: 50, 32: 30, 33: 20}
    asked = request["exactly"] if "exactly" in request else request["firstAvailable"][0]
    asked |= {"allocationMode": "ExactCount", "count": draft.weighted(counts)}


def missing_class(draft: Draft) -> None:
    """A class that nobody has made."""
    draft.one(draft.asked())["deviceClassName"] = "nothing"


def no_requests(draft: Draft) -> None:
    """A claim for nothing."""
    draft.claims.append(claim("nothing", {}))


def gates_off(draft: Draft) -> None:
    """Gates that are on by default, off."""
    names = (
        "DRAConsumableCapacity",
        "DRADeviceBindingConditions",
        "DRADeviceTaints",
        "DRAPartitionableDevices",
        "DRAPrioritizedList",
        "DRAAdminAccess",
    )
    for name in draft.some(names, 0.2):
        draft.gates[name] = False
