"""Themes of requests: selectors, modes, alternatives, constraints, configuration."""

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
    chosen_documents,
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
    for request in draft.sample(draft.device_requests(), 0.6):
        texts = draft.sample(SELECTORS, 0.1)
        if careless and draft.maybe(0.5):
            texts.insert(draft.rng.randrange(len(texts) + 1), draft.pick(BARE_SELECTORS))
        request["selectors"] = chosen_documents(*texts)
    if draft.maybe(0.3):
        draft.pick(draft.classes)["spec"]["selectors"] += chosen_documents(draft.pick(SELECTORS))


def broken_selectors(draft: Draft) -> None:
    """Selectors that end the attempt if they are evaluated."""
    request = draft.pick(draft.device_requests())
    text = draft.pick(BROKEN_SELECTORS)
    guard = draft.pick((SELECTORS[1], SELECTORS[3], f'device.driver == "{NIC}"'))
    request["selectors"] = (
        chosen_documents(guard, text) if draft.maybe(0.7) else chosen_documents(text)
    )


def all_devices(draft: Draft) -> None:
    """Requests for all devices that match."""
    for request in draft.sample(draft.device_requests(), 0.2):
        request["allocationMode"] = "All"
        del request["count"]
        if draft.maybe(0.5):
            request["selectors"] = chosen_documents(draft.pick(SELECTORS))


def alternatives(draft: Draft) -> None:
    """Requests with a list of alternatives, the best first."""
    for _, request in draft.sample(draft.requests(), 0.5):
        if "exactly" not in request:
            continue
        first = {
            key: value for key, value in request.pop("exactly").items() if key != "adminAccess"
        }
        many = draft.weighted({1: 10, 2: 50, 3: 30, 8: 10})
        others = [draft.exactly() for _ in range(many - 1)]
        if draft.maybe(0.7) and "count" in first:
            first["count"] += draft.pick((1, 2, 4))
        request["firstAvailable"] = [
            {"name": f"s{index}"} | alternative
            for index, alternative in enumerate([first, *others])
        ]


def admin(draft: Draft) -> None:
    """Requests that look at devices in any use."""
    for _, request in draft.sample(draft.requests(), 0.4):
        if "exactly" in request:
            request["exactly"]["adminAccess"] = draft.maybe(0.9)


def matching(draft: Draft) -> None:
    """Devices that must be alike."""
    for claim_ in draft.sample(draft.claims, 0.7):
        constrain(draft, claim_, draft.pick(CONSTRAINED), kind="matchAttribute")


def distinct(draft: Draft) -> None:
    """Devices that must differ."""
    for claim_ in draft.sample(draft.claims, 0.7):
        constrain(
            draft,
            claim_,
            draft.pick((*CONSTRAINED, *[f"{GPU}/index"] * 5)),
            kind="distinctAttribute",
        )


def constrain(draft: Draft, claim: Json, attribute: str, kind: str | None = None) -> None:
    """Add a constraint on some of a claim's requests."""
    kind = kind or draft.weighted({"matchAttribute": 70, "distinctAttribute": 30})
    constraint: Json = {kind: attribute}
    if draft.maybe(0.4):
        constraint["requests"] = references(draft, claim)
    if draft.maybe(0.03):
        constraint |= {"matchAttribute": attribute, "distinctAttribute": attribute}
    claim["spec"]["devices"].setdefault("constraints", []).append(constraint)


def references(draft: Draft, claim: Json) -> list[str]:
    """Some requests of a claim, or some of their alternatives, as `request/alternative`."""
    names: list[str] = []
    for request in draft.sample(claim["spec"]["devices"]["requests"], 0.6):
        alternative = [sub["name"] for sub in request.get("firstAvailable", ())]
        if alternative and draft.maybe(0.5):
            names += [f"{request['name']}/{sub}" for sub in draft.sample(alternative)]
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
    for claim_ in draft.sample(draft.claims, 0.7):
        expression = draft.pick(expressions)
        for request in draft.sample(claim_["spec"]["devices"]["requests"], 0.9):
            for alternative in (
                [request["exactly"]] if "exactly" in request else request["firstAvailable"]
            ):
                text = expression if draft.maybe(0.8) else draft.pick(expressions)
                if draft.maybe(0.08):
                    missing = draft.pick(("nothing", "model", "numa", "driverVersion"))
                    text = f'device.attributes["{GPU}"].{missing}'
                alternative["derivedAttributes"] = [{"name": name, "expression": text}]
        constrain(draft, claim_, name)


def configs(draft: Draft) -> None:
    """Configuration from classes and claims."""
    for index, device_class in enumerate(draft.classes):
        if draft.maybe(0.6):
            device_class["spec"]["config"] = [
                _config(f"class-{index}-{k}") for k in range(draft.pick((1, 1, 2)))
            ]
    for index, claim_ in enumerate(draft.claims):
        entries = [_config(f"claim-{index}-{k}") for k in range(draft.pick((0, 1, 2, 3)))]
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
        pool = draft.pick(draft.pools)
        last = [slice_ for slice_ in pool if slice_["spec"].get("devices")][-1]
        last["spec"]["devices"] += [
            {"name": f"more-{index}", "attributes": {"model": {"string": "A100"}}, "capacity": {}}
            for index in range(draft.pick((20, 30, 40)))
        ]
    _, request = draft.pick(draft.requests())
    counts = {16: 10, 20: 10, 31: 10, 32: 20, 33: 15, 500: 10, 2**63 - 1: 10}
    if "exactly" in request:
        if draft.maybe(0.7):
            first = request.pop("exactly") | {"name": "s0"}
            first.pop("adminAccess", None)
            request["firstAvailable"] = [first, {"name": "s1"} | draft.exactly()]
        else:
            counts = {16: 50, 32: 30, 33: 20}
    alternatives = request["exactly"] if "exactly" in request else request["firstAvailable"][0]
    alternatives |= {"allocationMode": "ExactCount", "count": draft.weighted(counts)}


def missing_class(draft: Draft) -> None:
    """A class that nobody has made."""
    draft.pick(draft.device_requests())["deviceClassName"] = "nothing"


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
    for name in draft.sample(names, 0.2):
        draft.gates[name] = False
