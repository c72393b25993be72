"""Nodes, devices and pods of the churn."""

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from bench.bridge.load import NOWHERE_TEMPLATE, templates_of
from bench.bridge.scenarios import CLASS, DRIVER, NOWHERE, SCENARIOS, Object
from e2e.inventory import kwok_node
from e2e.objects import pod
from kube.names import SCHEDULER_NAME
from testing.documents import api_object

KIND_LABEL: Final = f"{DRIVER}/kind"
CROWDED_NODES: Final = 2
"""The number of nodes with more pods than devices for them."""
URGENT: Final = "urgent"
URGENT_EVERY: Final = 5
"""One of so many pods on crowded nodes has a priority."""
_GRACE_S: Final = 5
_COSTLY: Final = "(?i)(\\\\pL|.){0,700}c"


class NodeKind(NamedTuple):
    """Nodes with the same devices, and the pods that only they take.

    Attributes:
        label: The label of the nodes.
        slices: Name of a node to its ResourceSlices.
        templates: Names of the ResourceClaimTemplates of its pods.
        novel: A number to the `devices` of a claim like no other.
    """

    label: str
    slices: Callable[[str], Sequence[Object]]
    templates: Sequence[str]
    novel: Callable[[int], Object]


class Life(NamedTuple):
    """A pod, and its planned course.

    Attributes:
        claim: Its own claim; None if it names a template.
        is_bound, is_turned_away: Whether that must happen; either may happen if neither must.
    """

    pod: Object
    claim: Object | None = None
    is_bound: bool = False
    is_turned_away: bool = False


def _requests(expression: str, **fields: Any) -> Object:
    selectors = [{"cel": {"expression": expression}}]
    exactly = {"deviceClassName": CLASS, "selectors": selectors, **fields}
    return {"requests": [{"name": "devices", "exactly": exactly}]}


def _novel_device(number: int) -> Object:
    amount = f'quantity("{number % 80_000 + 1}Mi")'
    return _requests(f'device.capacity["{DRIVER}"].memory.compareTo({amount}) >= 0')


def _novel_fraction(number: int) -> Object:
    return _requests("true", capacity={"requests": {"memory": f"{number % 20_000 + 1}Mi"}})


def _novel_partition(number: int) -> Object:
    profile = f'device.attributes["{DRIVER}"].profile'
    return _requests(f'{profile} == "1g" || {profile} == "x{number}"')


def _costly(number: int) -> Object:
    attribute = f'device.attributes["{DRIVER}"].uuid'
    return _requests(f'{attribute}.matches("{_COSTLY}{number}")')


_WHOLE: Final = NodeKind("whole", SCENARIOS["PCIe pair"].slices, ("one", "pair"), _novel_device)
_KINDS: Final = (
    _WHOLE,
    NodeKind("shared", SCENARIOS["fraction"].slices, ("fraction",), _novel_fraction),
    NodeKind("partitioned", SCENARIOS["partitions"].slices, ("3g", "2g", "1g"), _novel_partition),
)
_CROWDED: Final = _WHOLE._replace(label="crowded", templates=("one",))


def kind_of(number: int) -> NodeKind:
    """Return the kind of a node."""
    return _CROWDED if number < CROWDED_NODES else _KINDS[number % len(_KINDS)]


def node(number: int) -> Object:
    """Return a node with a label that tells its devices."""
    document = kwok_node(f"node-{number}")
    document["metadata"]["labels"][KIND_LABEL] = kind_of(number).label
    return document


def slices(number: int, *, generation: int = 1, is_worn: bool = False) -> list[Object]:
    """Return the ResourceSlices of a node.

    Args:
        generation: The generation of its pool.
        is_worn: Whether one device has a taint.
    """
    pieces = list(kind_of(number).slices(f"node-{number}"))
    for piece in pieces:
        piece["spec"]["pool"]["generation"] = generation
        for device in piece["spec"].get("devices", ())[:1]:
            device["taints"] = [{"key": f"{DRIVER}/worn", "effect": "NoSchedule"}] * is_worn
    return pieces


def templates() -> Iterator[Object]:
    """Yield the ResourceClaimTemplates of all pods; some are the same."""
    for scenario in SCENARIOS.values():
        yield from templates_of(scenario, NOWHERE)


def priority_class() -> Object:
    """Return the PriorityClass of some pods on crowded nodes."""
    return api_object("PriorityClass", URGENT, value=1000)


def life(number: int, chance: random.Random) -> Life:
    """Return a pod: mostly of a template, every fourth with a claim like no other."""
    kind = chance.choice(_KINDS)
    lives: dict[Callable[[], Life], int] = {
        lambda: Life(_pod(number, kind, chance.choice(kind.templates)), is_bound=True): 60,
        lambda: _with_claim(number, kind, kind.novel(number))._replace(is_bound=True): 25,
        lambda: Life(_pod(number, _WHOLE, NOWHERE_TEMPLATE), is_turned_away=True): 5,
        lambda: _with_claim(number, _WHOLE, _costly(number)): 2,
        lambda: Life(_crowded_pod(number)): 8,
    }
    (make,) = chance.choices(list(lives), list(lives.values()))
    return make()


def _pod(number: int, kind: NodeKind, template: str, **spec: Any) -> Object:
    return pod(
        f"pod-{number:06d}",
        claims={"devices": template},
        schedulerName=SCHEDULER_NAME,
        nodeSelector={KIND_LABEL: kind.label},
        terminationGracePeriodSeconds=_GRACE_S,
        **spec,
    )


def _crowded_pod(number: int) -> Object:
    is_urgent = number % URGENT_EVERY == 0
    spec = {"priorityClassName": URGENT} if is_urgent else {}
    return _pod(number, _CROWDED, "one", **spec)


def _with_claim(number: int, kind: NodeKind, devices: Object) -> Life:
    document = _pod(number, kind, "")
    name = document["metadata"]["name"]
    source = {"name": "devices", "resourceClaimName": name}
    document["spec"]["resourceClaims"] = [source]
    claim = api_object("ResourceClaim", name, spec={"devices": devices})
    return Life(document, claim)
