"""Species for the search for high costs: selectors of pods' authors, on inventories and in the worker.

Each draws selectors of several shapes, claims of many requests, and devices with many attributes. The laws:
an evaluation takes at most three times its price; a decision of the bridge, and one about the scheduler
of a pod, holds its turn no longer than it may; what one tenant does to the worker, others do not notice.
"""

from collections.abc import Callable, Sequence
from functools import cache
from random import Random
from time import thread_time
from typing import Final, NamedTuple

from admission.routing import Bridge, route_pod
from clusterstate.evaluator import MAX_CPU_S as ROUTE_CPU_S
from kube.api.core import Pod
from kube.api.meta import convert
from kube.api.resource import Device, ResourceClaim, ResourceSlice
from kube.errors import CelError
from process.selectors.engine import MAX_LOSSES
from rules.context.context import Context
from rules.context.inventory import Inventory
from sidecar.answers.decision_maker import MAX_CPU_S as BRIDGE_CPU_S
from sidecar.plan.decisions import find_nodes
from testing.allocation.builders import DRIVER, claim, device, device_class, node, request, slice_of
from testing.fuzz.evaluating import Evaluation, costliest_turn_s, lose_workers
from testing.fuzz.species import Species
from testing.sidecar.snapshots import pod, snapshot

PRICE: Final = 3.0
"""CPU of an evaluation, as a multiple of its price."""
TURN: Final = 2.0
"""CPU of a turn, as a multiple of what ends it: what is begun is finished, and machines differ."""
TRIES: Final = 8
"""The least of so many counts: the first warms caches, and others are disturbed."""
LONG_S: Final = 0.1
"""An evaluation of this CPU time is measured once."""
LENGTH: Final = 9_700
OTHER: Final = "other.example.com"
TENANT_EXPRESSIONS: Final = 36
"""The number of a tenant's expressions in a row; more than the losses after which nobody was served any more."""
NODES: Final = 16

A: Final = f'device.attributes["{DRIVER}"]'
LETTERS: Final = "abcdefghijklmnopqrstuvwxyz0123456789"


class SelectorGene(NamedTuple):
    """Claims and devices, in numbers.

    Attributes:
        shape: Index in `SHAPES`.
        length: Characters of a selector.
        requests: The number of requests of a claim.
        selectors: The number of selectors of a request.
        devices: The number of devices in the inventory, as an exponent of 2.
        attributes: The number of attributes of a device, beside its uuid; each is a list of strings.
        salt: Makes a selector another one.
    """

    shape: int = 0
    length: int = 100
    requests: int = 1
    selectors: int = 1
    devices: int = 0
    attributes: int = 0
    salt: int = 0


Shape = Callable[[int, Random], str]
"""Returns a selector of about so many characters."""


def _joined(term: Callable[[], str], operator: str, length: int) -> str:
    terms = [term()]
    size = len(terms[0])
    while size < length:
        terms.append(term())
        size += len(terms[-1]) + len(operator)
    return operator.join(terms)


def patterns(length: int, chance: Random) -> str:
    """Return many regular expressions on the uuid that all fail to match."""

    def term() -> str:
        first, second = chance.choices(LETTERS, k=2)
        return f'{A}.uuid.matches(".*{first}.*{second}!")'

    return _joined(term, " || ", length)


def presence(length: int, chance: Random) -> str:
    """Return tests for many attributes."""
    return _joined(lambda: f"has({A}.a{chance.randrange(10**6)})", " || ", length)


def literal(length: int, chance: Random) -> str:
    """Return a comparison with a long text."""
    return f'device.driver == "{"".join(chance.choices(LETTERS, k=length))}"'


def _numbers(length: int) -> str:
    return ",".join("1" * max(1, length // 2))


def mapped(length: int, chance: Random) -> str:
    """Return a list with elements that are mapped: the engine copies it for each of them."""
    return f"[{_numbers(length)}].map(x, x + 1).size() > {chance.randrange(10**9)}"


def filtered(length: int, chance: Random) -> str:
    """Return a list that is filtered, likewise."""
    return f"[{_numbers(length)}].filter(x, x > 0).size() > {chance.randrange(10**9)}"


def mapped_texts(length: int, chance: Random) -> str:
    """Return a list of texts that are mapped to longer ones."""
    text = "".join(chance.choices(LETTERS, k=max(1, length // 20)))
    texts = ",".join(['"ab"'] * max(1, length // 5))
    return f'[{texts}].map(x, x + "{text}").size() > 99'


def pairs(length: int, chance: Random) -> str:
    """Return a loop in a loop."""
    side = max(2, length // 14)
    numbers = f"lists.range({side})"
    return f"{numbers}.exists(x, {numbers}.exists(y, x + y == -{chance.randrange(1, 10**9)}))"


def keyed(length: int, chance: Random) -> str:
    """Return a loop in a loop, as the key of a map."""
    return f"{{{pairs(length, chance)}: 1}}.size() > {chance.randrange(1, 10**9)}"


def doubled(length: int, chance: Random) -> str:
    """Return a comparison of lists that double in every binding."""
    count = 1 + length // 900
    bindings = "".join(f"cel.bind(x{n + 1}, x{n} + x{n}, " for n in range(count))
    last = f"x{count} == x{count} + [{chance.randrange(10**9)}]"
    return f"cel.bind(x0, [{_numbers(20)}], {bindings}{last}{')' * (count + 1)}"


def lists_of_device(length: int, chance: Random) -> str:
    """Return loops over lists of the device."""
    return _joined(
        lambda: f'{A}.list{chance.randrange(4)}.exists(v, v == "{chance.randrange(10**6)}")',
        " || ",
        length,
    )


def replaced(length: int, chance: Random) -> str:
    """Return a text with every letter replaced by a longer text."""
    text = "a" * max(1, length - 60)
    return f'"{text}".replace("a", "{chance.randrange(10**9)}").size() > {10**9}'


def split(length: int, chance: Random) -> str:
    """Return a text that is split into letters."""
    text = "a" * max(1, length - 60)
    return f'"{text}".split("").exists(x, x == "{chance.randrange(10**9)}")'


def members(length: int, chance: Random) -> str:
    """Return a test for a member of a long list."""
    return f"{chance.randrange(10, 10**9)} in [{_numbers(length)}]"


SHAPES: Final[Sequence[Shape]] = (
    *(patterns, presence, literal, mapped, filtered, mapped_texts),
    *(pairs, keyed, doubled, lists_of_device, replaced, split, members),
)
_MOST: Final = SelectorGene(len(SHAPES) - 1, LENGTH, 32, 8, 9, 30, 10**6)
_LEAST: Final = SelectorGene(requests=1, selectors=1, length=1)


def draw_selector(chance: Random) -> SelectorGene:
    """Return a gene with small or large numbers."""
    small = chance.random() < 0.3
    return SelectorGene(
        *(
            chance.randint(
                least if index else 0, max(least, most // 8 if small and index else most)
            )
            for index, (least, most) in enumerate(zip(_LEAST, _MOST, strict=True))
        )
    )


def change_selector(gene: SelectorGene, chance: Random) -> SelectorGene:
    """Return a gene with one or two other numbers, and always another salt."""
    numbers = list(gene)
    for _ in range(chance.randint(1, 2)):
        index = chance.randrange(1, len(numbers))
        step = max(_MOST[index] // 5, 1)
        changed = numbers[index] + chance.randint(-step, step)
        least = _LEAST[index] if index else 0
        numbers[index] = min(max(changed, least), _MOST[index])
    numbers[-1] = chance.randrange(_MOST.salt)
    return SelectorGene(*numbers)


def selector_of(gene: SelectorGene, number: int = 0) -> str:
    """Return one of the selectors that a gene stands for."""
    return SHAPES[gene.shape](gene.length, Random(f"{gene.salt}/{number}"))[: LENGTH + 300]


def show(gene: SelectorGene) -> str:
    """Return a gene with the name of its shape."""
    return f"{SHAPES[gene.shape].__name__} {gene}"


# --- one evaluation -------------------------------------------------------------------------------


def evaluation_excess(gene: SelectorGene) -> float:
    """Return the CPU time of an evaluation as a part of three times its price; 0 if it has none."""
    try:
        evaluation = Evaluation(selector_of(gene), DRIVER, device_of(0, gene.attributes))
    except CelError:
        return 0.0
    allowed_s = PRICE * evaluation.price_s
    least_s = float("inf")
    for _ in range(TRIES):
        began_s = thread_time()
        evaluation.run()
        least_s = min(least_s, thread_time() - began_s)
        if least_s < allowed_s / 2 or least_s > LONG_S:
            break
    return least_s / allowed_s


# --- decisions ------------------------------------------------------------------------------------


def decision_excess(gene: SelectorGene) -> float:
    """Return the CPU time that a decision of the bridge holds its turn, as a part of the allowed time."""
    count, owned_device_class = 2**gene.devices, device_class("gpu", f'device.driver == "{DRIVER}"')
    stored = _claim_of(gene)
    names = [f"node-{number}" for number in range(min(NODES, count))]
    cluster = snapshot(
        stored,
        nodes=[node(name) for name in names],
        slices=[
            slice_of(*_devices(count, gene.attributes)[first :: len(names)], pool=name, node=name)
            for first, name in enumerate(names)
        ],
        classes=[owned_device_class],
    )
    created_pod = pod(stored.metadata.name)
    took_s = costliest_turn_s(lambda: find_nodes(created_pod, cluster), BRIDGE_CPU_S)
    return took_s / (TURN * BRIDGE_CPU_S)


def route_excess(gene: SelectorGene) -> float:
    """Return the CPU time of a turn that chooses a pod's scheduler, as a part of the allowed time."""
    stored = _claim_of(gene)
    devices = _devices(2**gene.devices, gene.attributes)
    slices = [
        _slice(driver, devices[first : first + 128], first)
        for driver in (DRIVER, OTHER)
        for first in range(0, len(devices), 128)
    ]
    mixed = device_class("gpu", f'device.driver in ["{DRIVER}", "{OTHER}"]')
    context = Context(
        classes={mixed.metadata.name: mixed},
        inventory=Inventory(slices),
        claims={("team", stored.metadata.name): stored.spec.devices},
        owned_drivers=frozenset([DRIVER]),
        applied_together=True,
    )
    created_pod = convert(
        {
            "metadata": {"name": "pod"},
            "spec": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]},
        },
        Pod,
    )
    bridge = Bridge("drawbridge-scheduler")
    took_s = costliest_turn_s(lambda: route_pod(created_pod, "team", context, bridge), ROUTE_CPU_S)
    return took_s / (TURN * ROUTE_CPU_S)


def _claim_of(gene: SelectorGene) -> ResourceClaim:
    return claim(
        *(
            request(
                f"r{number}",
                *(
                    selector_of(gene, number * gene.selectors + place)
                    for place in range(gene.selectors)
                ),
            )
            for number in range(gene.requests)
        ),
        name="gpu",
    )


def _slice(driver: str, devices: Sequence[Device], first: int) -> ResourceSlice:
    name = f"{driver}-{first}"
    return slice_of(*devices, name=name, driver=driver, pool=name, node=f"node-{first}")


@cache
def _devices(count: int, attributes: int) -> tuple[Device, ...]:
    return tuple(device_of(number, attributes) for number in range(count))


@cache
def device_of(number: int, attributes: int) -> Device:
    """Return a device with a uuid, and so many lists of eight strings."""
    lists = {
        f"list{index}": [f"{number}-{index}-{n}" * 5 for n in range(8)]
        for index in range(attributes)
    }
    uuid = f"GPU-{number:08}-aaaa-bbbb-cccc-{number:012}"
    return device(f"gpu-{number}", attributes={"uuid": uuid, **lists})


# --- the worker -----------------------------------------------------------------------------------


def worker_excess(gene: SelectorGene) -> float:
    """Return the number of workers that one tenant ends within a minute, as a part of the allowed number.

    It is ten times as much where another tenant is not served afterwards.
    """
    expressions = [selector_of(gene, number) for number in range(TENANT_EXPRESSIONS)]
    honest = f'device.driver == "{DRIVER}"'.ljust(600)
    lost = lose_workers(expressions, honest, DRIVER, device_of(0, gene.attributes))
    return lost.workers / MAX_LOSSES if lost.others_served else 10.0


SPECIES: Final = {
    "evaluation": Species(draw_selector, change_selector, evaluation_excess, show),
    "decision": Species(draw_selector, change_selector, decision_excess, show),
    "route": Species(draw_selector, change_selector, route_excess, show),
    "worker": Species(draw_selector, change_selector, worker_excess, show),
}
