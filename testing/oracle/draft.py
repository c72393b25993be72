"""A small random cluster with claims, before any feature is added: the input of the themes.

Objects are plain dicts of Kubernetes JSON, written as the API server would store them: defaults are
spelled out. A draft has one source of chance, so a seed gives the same scenario every time.
"""

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final, TypeVar

Json = dict[str, Any]
T = TypeVar("T")

GPU: Final = "gpu.example.com"
NIC: Final = "nic.example.com"
ROOT: Final = "resource.kubernetes.io/pcieRoot"

_A: Final = f'device.attributes["{GPU}"]'
_C: Final = f'device.capacity["{GPU}"]'

SELECTORS: Final = (
    f'device.driver == "{GPU}"',
    f'{_A}.?model.orValue("") == "A100"',
    f'has({_A}.model) && {_A}.model == "H100"',
    f'"numa" in {_A} && {_A}.numa == 0',
    f"{_A}.?healthy.orValue(true)",
    f"{_A}.?index.orValue(0) % 2 == 0",
    f"{_A}.?index.orValue(0) in [1, 2, 3, 5, 8]",
    f'{_C}.?memory.orValue(quantity("0")).compareTo(quantity("40Gi")) >= 0',
    f'{_C}.?memory.orValue(quantity("0")).isLessThan(quantity("80Gi"))',
    f'cel.bind(a, {_A}, !has(a.driverVersion) || a.driverVersion.isGreaterThan(semver("1.1.0")))',
    'device.attributes["resource.kubernetes.io"].?pcieRoot.orValue("").endsWith("0")',
    "device.attributes.exists(d, has(device.attributes[d].numa))",
    f'device.driver == "{NIC}" || {_A}.?model.orValue("") != "L4"',
)
"""Selectors that are true or false of every device."""

BARE_SELECTORS: Final = (
    f'{_A}.model == "A100"',
    f"{_A}.healthy",
    f"{_A}.index < 4",
    f'{_C}.memory.isGreaterThan(quantity("20Gi"))',
    f"{_A}.numa == 0 || {_A}.healthy",
    f'{_A}.driverVersion.compareTo(semver("1.2.0")) >= 0',
    'device.attributes["resource.kubernetes.io"].pcieRoot == "pci0"',
)
"""Selectors as people write them: a runtime error on a device that lacks the attribute."""

BROKEN_SELECTORS: Final = (
    "device.nodeName == 'n1'",
    f"{_A}.model",
    f"{_A}.model > 3",
    f"{_A}.model ==",
    f"{_A}.nothing == 1",
)
"""Errors wherever they are evaluated."""


class Draft:
    """A scenario in the making."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.nodes: list[Json] = []
        self.pools: list[list[Json]] = []
        self.classes: list[Json] = []
        self.claims: list[Json] = []
        self.allocated: list[Json] = []
        self.taint_rules: list[Json] = []
        self.gates: dict[str, bool] = {}

    # --- chance ----------------------------------------------------------------------------------

    def maybe(self, chance: float) -> bool:
        """True with this chance."""
        return self.rng.random() < chance

    def pick(self, choices: Sequence[T]) -> T:
        """One of the choices, all alike."""
        return self.rng.choice(choices)

    def sample(self, choices: Sequence[T], chance: float = 0.5) -> list[T]:
        """At least one of the choices, each else with this chance, in order."""
        choices_made = [choice for choice in choices if self.maybe(chance)]
        return choices_made or [self.pick(choices)] if choices else []

    def weighted(self, choices: Mapping[T, int]) -> T:
        """One of the choices by weight."""
        return self.rng.choices(list(choices), list(choices.values()))[0]

    # --- what is there ---------------------------------------------------------------------------

    def slices(self) -> Iterator[Json]:
        """Every slice, pool by pool."""
        return (slice_ for pool in self.pools for slice_ in pool)

    def devices(self, pool: Sequence[Json] | None = None) -> list[Json]:
        """The devices of one pool or of all."""
        slices = self.slices() if pool is None else iter(pool)
        return [device for slice_ in slices for device in slice_["spec"].get("devices", ())]

    def requests(self) -> list[tuple[Json, Json]]:
        """Each claim's requests."""
        return [(c, r) for c in self.claims for r in c["spec"]["devices"]["requests"]]

    def device_requests(self) -> list[Json]:
        """The requests for devices: `exactly` of each request, or each of its alternatives."""
        return [
            alternative
            for _, request in self.requests()
            for alternative in (
                [request["exactly"]] if "exactly" in request else request["firstAvailable"]
            )
        ]

    # --- a plain cluster -------------------------------------------------------------------------

    def build(self) -> None:
        """Nodes, pools, classes and claims that use few features."""
        for index in range(self.weighted({1: 12, 2: 44, 3: 44})):
            self.nodes.append(self._node(index + 1))
        self._add_pools()
        self._add_classes()
        for index in range(self.weighted({1: 50, 2: 36, 3: 14})):
            self._add_claim(f"claim-{index}")

    def _node(self, number: int) -> Json:
        labels = {
            "zone": self.pick("ab"),
            "rack": self.pick("xyz"),
            "kubernetes.io/os": "linux",
        }
        return {"metadata": {"name": f"n{number}", "labels": labels}}

    def _add_pools(self) -> None:
        for node in self.nodes:
            name = node["metadata"]["name"]
            if self.maybe(0.93):
                self.add_pool(GPU, name, {"nodeName": name})
            if self.maybe(0.45):
                self.add_pool(GPU, f"{name}-more", {"nodeName": name})
            if self.maybe(0.25):
                self.add_pool(NIC, name, {"nodeName": name})
        for index in range(self.weighted({0: 40, 1: 40, 2: 20})):
            driver = self.weighted({GPU: 70, NIC: 30})
            self.add_pool(driver, f"shared-{index}", self._placement())
        if not self.pools:
            self.add_pool(GPU, "shared-0", {"allNodes": True})

    def _placement(self) -> Json:
        selector = self.node_selector()
        return self.pick(
            ({"allNodes": True}, {"nodeSelector": selector}, {"perDeviceNodeSelection": True})
        )

    def node_selector(self) -> Json:
        """A term on labels or on the node's name."""
        nodes = [node["metadata"]["name"] for node in self.nodes]
        zone = {"key": "zone", "operator": "In", "values": self.sample("ab", 0.7)}
        rack = {"key": "rack", "operator": "NotIn", "values": [self.pick("xyz")]}
        label = {"key": "kubernetes.io/os", "operator": "Exists"}
        field = {"key": "metadata.name", "operator": "In", "values": [self.pick(nodes)]}
        term: Json = self.pick(
            (
                {"matchExpressions": [zone]},
                {"matchExpressions": [label, rack]},
                {"matchFields": [field]},
                {"matchExpressions": [zone], "matchFields": [field]},
            )
        )
        return {"nodeSelectorTerms": [term]}

    def _terms(self) -> Json:
        """The terms of a device, not kept at one by anybody."""
        selector = self.node_selector()
        if self.maybe(0.03):
            selector["nodeSelectorTerms"] += self.node_selector()["nodeSelectorTerms"]
        return selector

    def add_pool(self, driver: str, pool: str, placement: Json) -> list[Json]:
        """A pool of one or two slices with up to 8 devices."""
        count = self.weighted({1: 4, 2: 8, 3: 8, 4: 20, 5: 10, 6: 20, 8: 30})
        devices = [self._device(driver, f"d{index}", index) for index in range(count)]
        if "perDeviceNodeSelection" in placement:
            for device in devices:
                device.update(self._device_placement())
        parts = 2 if count > 1 and self.maybe(0.25) else 1
        cut = count // parts
        slices = [
            {
                "metadata": {"name": f"{pool}-{driver.partition('.')[0]}-{self.pick('abc')}{part}"},
                "spec": {
                    "driver": driver,
                    "pool": {"name": pool, "generation": 2, "resourceSliceCount": parts},
                    **placement,
                    "devices": devices[part * cut : (part + 1) * cut if part + 1 < parts else None],
                },
            }
            for part in range(parts)
        ]
        self.pools.append(slices)
        return slices

    def _device_placement(self) -> Json:
        if self.maybe(0.4):
            return {"nodeName": self.pick(self.nodes)["metadata"]["name"]}
        return {"nodeSelector": self._terms()} if self.maybe(0.5) else {"allNodes": True}

    def _device(self, driver: str, name: str, index: int) -> Json:
        present = {
            "model": {"string": self.weighted({"A100": 60, "H100": 25, "L4": 15})},
            "index": {"int": index},
            f"{driver}/numa" if self.maybe(0.1) else "numa": {"int": index % 2},
            "healthy": {"bool": self.maybe(0.85)},
            "driverVersion": {"version": self.pick(("1.2.0", "1.2.0", "1.10.0-rc.1", "1.1.0+x"))},
            ROOT: {"string": f"pci{index // 2 % 2}"},
            f"{driver}/uuid": {"string": f"{name}-{self.rng.randrange(10**6)}"},
        }
        sure = self.maybe(0.9)
        memory = self.weighted({"80Gi": 50, "40Gi": 30, "20480Mi": 20})
        return {
            "name": name,
            "attributes": {k: v for k, v in present.items() if sure or self.maybe(0.8)},
            "capacity": {"memory": {"value": memory}} if sure or self.maybe(0.8) else {},
        }

    def _add_classes(self) -> None:
        a100, large = SELECTORS[1], SELECTORS[7]
        gpu, nic = SELECTORS[0], f'device.driver == "{NIC}"'
        for name, texts in (
            ("gpu", (gpu,)),
            ("a100", (gpu, a100)),
            ("large", (gpu, large)),
            ("nic", (nic,)),
            ("any", ()),
        ):
            self.classes.append(
                {"metadata": {"name": name}, "spec": {"selectors": chosen_documents(*texts)}}
            )

    def _add_claim(self, name: str) -> None:
        requests = [
            {"name": f"r{index}", "exactly": self.exactly()}
            for index in range(self.weighted({1: 27, 2: 40, 3: 33}))
        ]
        self.claims.append(claim(name, {"requests": requests}))

    def exactly(self, count: int | None = None) -> Json:
        """A plain request for devices."""
        request: Json = {
            "deviceClassName": self.weighted(
                {"gpu": 70, "a100": 9, "large": 6, "nic": 3, "any": 12}
            ),
            "allocationMode": "ExactCount",
            "count": count or self.weighted({1: 38, 2: 35, 3: 19, 4: 8}),
        }
        if self.maybe(0.2):
            request["selectors"] = chosen_documents(self.pick(SELECTORS))
        return request


def chosen_documents(*expressions: str) -> list[Json]:
    """The selectors of a class or request."""
    return [{"cel": {"expression": text}} for text in expressions]


def claim(name: str, devices: Json) -> Json:
    """A claim for these devices."""
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    return {"metadata": metadata, "spec": {"devices": devices}}
