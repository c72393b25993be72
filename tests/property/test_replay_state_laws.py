"""A cluster changed step by step equals the cluster that is built from the last state."""

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.replay.state import ReplayState
from allocator.replay.workload import Candidate, Inventory, ReplayPod
from allocator.search.attempt import AllocatorOptions
from kube.api.core import Node, Pod
from kube.api.meta import convert
from kube.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from testing.recordings import gpu, node
from testing.simulated_cluster import claim, device_class, holding, slice_of

pytestmark = pytest.mark.property

NAMES: Final = ("node-a", "node-b", "node-c")
DEVICES: Final = ("gpu-0", "gpu-1")
CLASSES: Final = {"gpu": convert(device_class(), DeviceClass)}
OPTIONS: Final = AllocatorOptions()

steps: Final = st.lists(
    st.one_of(
        st.tuples(st.just("node"), st.sampled_from(NAMES), st.sampled_from((None, 4, 8))),
        st.tuples(st.just("slice"), st.sampled_from(NAMES), st.sampled_from((None, 1, 2))),
        st.tuples(st.just("pod"), st.sampled_from(NAMES), st.sampled_from(DEVICES)),
        st.tuples(st.just("gone"), st.integers(0, 9), st.none()),
    ),
    max_size=12,
)


def pod_on(number: int, name: str) -> Pod:
    requests = {"cpu": str(number % 3 + 1), "memory": "1Gi"}
    document = {
        "metadata": {"name": f"pod-{number}", "namespace": "team"},
        "spec": {"nodeName": name, "containers": [{"resources": {"requests": requests}}]},
    }
    return convert(document, Pod)


class Cluster:
    """A state that is changed, and its target."""

    def __init__(self) -> None:
        self.state = ReplayState(Inventory(nodes=(), classes=CLASSES), OPTIONS)
        self.nodes: dict[str, Node] = {}
        self.slices: dict[str, ResourceSlice] = {}
        self.running: list[tuple[Candidate, str, tuple[ResourceClaim, ...]]] = []
        self.in_use: set[tuple[str, str]] = set()
        self._number = 0

    def take(self, kind: str, what: Any, value: Any) -> None:
        """Take a step."""
        match kind:
            case "node":
                changed = None if value is None else convert(node(what, cpu=value), Node)
                self.state.change({what: changed})
                self.nodes.pop(what, None)
                if changed is not None:
                    self.nodes[what] = changed
            case "slice":
                before = self.slices.pop(what, None)
                devices = [gpu(name) for name in DEVICES[: value or 0]]
                after = None if value is None else convert(slice_of(what, *devices), ResourceSlice)
                if after is not None:
                    self.slices[what] = after
                if before is not None or after is not None:
                    self.state.change({}, [(before, after)])
            case "pod":
                self._bind(what, value)
            case _:
                if not self.running:
                    return
                candidate, name, claims = self.running.pop(what % len(self.running))
                self.state.remove(candidate, name, claims)
                self.in_use -= {
                    (name, device)
                    for device in DEVICES
                    if claims and claims[0].metadata.name == device
                }

    def _bind(self, name: str, device: str) -> None:
        self._number += 1
        claims: tuple[ResourceClaim, ...] = ()
        if (name, device) not in self.in_use:
            self.in_use.add((name, device))
            claims = (convert(holding(device, device, name), ResourceClaim),)
        candidate = self.state.bare_candidate(ReplayPod(pod=pod_on(self._number, name)))
        self.state.put(candidate, name, claims)
        self.running.append((candidate, name, claims))

    def rebuilt(self) -> ReplayState:
        """Return the state built at once."""
        inventory = Inventory(
            nodes=tuple(self.nodes.values()),
            slices=tuple(self.slices.values()),
            classes=CLASSES,
            claims=tuple(claim_ for _, _, claims in self.running for claim_ in claims),
            pods=tuple(candidate.pod.pod for candidate, _, _ in self.running),
        )
        return ReplayState(inventory, OPTIONS)


def fitting(state: ReplayState, count: int) -> set[str]:
    """The nodes that have devices for a claim."""
    pending = state.cluster.resolve((convert(claim("asks", count), ResourceClaim),))
    plans = state.cluster.node_plans(pending)
    return {name for name in state.names if plans.fitting(name) is not None}


@given(taken=steps)
def test_steps_lead_where_they_lead_at_once(taken: list[tuple[str, Any, Any]]) -> None:
    cluster = Cluster()
    for step in taken:
        cluster.take(*step)
        fitting(cluster.state, 1)  # So that answers of before could be given again.

    rebuilt = cluster.rebuilt()
    assert cluster.state.names == rebuilt.names
    assert cluster.state.resources == rebuilt.resources
    for count in (1, 2):
        assert fitting(cluster.state, count) == fitting(rebuilt, count)
