"""A recording from a later moment on: its pods at that moment, and all later events. Pure."""

from collections.abc import Mapping

import msgspec

from allocator.pods.claims import Name, allocation_of, claim_name
from allocator.replay.recorded import Bound, Changed, Course, Event, Left, RecordedPod
from allocator.replay.workload import ReplayPod
from answers.model.cluster_state import ClusterState
from answers.recording.course import RecordedCluster
from kube.api.core import Node, Pod
from kube.api.resource import DeviceClass, ResourceClaim, ResourceSlice


def begin_at(recorded: RecordedCluster, second: float) -> RecordedCluster:
    """Return a recording as if it had begun in a second; later events keep their seconds."""
    return _Later(recorded, second).cluster() if second > 0 else recorded


class _Later:
    """The cluster at a moment."""

    def __init__(self, recorded: RecordedCluster, second: float) -> None:
        self._recorded = recorded
        self._second = second
        course, state = recorded.course, recorded.state
        self._nodes: dict[str, Node] = {node.metadata.name: node for node in state.nodes}
        self._slices: dict[str, ResourceSlice] = {
            slice_.metadata.name: slice_ for slice_ in state.slices
        }
        self._classes: Mapping[str, DeviceClass] = state.classes
        self._running = {
            number: (pod.node, pod.claims) for number, pod in enumerate(course.pods) if pod.node
        }
        self._gone: set[int] = set()
        self._later: list[Event] = []
        for event in course.events:
            if event.second > second:
                self._later.append(event)
            else:
                self._take(event)
        self._left_at = {
            event.number: event.second for event in self._later if isinstance(event, Left)
        }

    def _take(self, event: Event) -> None:
        match event:
            case Bound():
                self._running[event.number] = event.node, event.claims
            case Left():
                self._running.pop(event.number, None)
                self._gone.add(event.number)
            case Changed():
                for name, node in event.nodes.items():
                    self._nodes.pop(name, None)
                    if node is not None:
                        self._nodes[name] = node
                for before, after in event.slices:
                    if before is not None:
                        self._slices.pop(before.metadata.name, None)
                    if after is not None:
                        self._slices[after.metadata.name] = after
                self._classes = self._classes if event.classes is None else event.classes

    def cluster(self) -> RecordedCluster:
        """Return the recording from the moment on."""
        course = self._recorded.course
        others = (
            number
            for number in range(len(course.pods))
            if number not in self._running and number not in self._gone
        )
        numbers = [*sorted(self._running), *others]
        places = {number: place for place, number in enumerate(numbers)}
        pods = tuple(
            self._running_pod(number) if number in self._running else self._waiting_pod(number)
            for number in numbers
        )
        events = tuple(
            event
            if isinstance(event, Changed)
            else msgspec.structs.replace(event, number=places[event.number])
            for event in self._later
        )
        return msgspec.structs.replace(
            self._recorded,
            state=self._state(pods),
            course=Course(pods=pods, events=events, until=course.until, begin=self._second),
        )

    def _running_pod(self, number: int) -> RecordedPod:
        pod = self._recorded.course.pods[number]
        node, claims = self._running[number]
        replayed = ReplayPod(
            pod=_bound(pod.replay.pod, node),
            claims=pod.replay.claims,
            shared=pod.replay.shared,
            priority=pod.replay.priority,
            departure=self._left_at.get(number),
        )
        return msgspec.structs.replace(pod, replay=replayed, node=node, claims=claims)

    def _waiting_pod(self, number: int) -> RecordedPod:
        """Return a pod that came later, or waited at the moment."""
        pod = self._recorded.course.pods[number]
        replayed = pod.replay
        if replayed.arrival is None or replayed.arrival >= self._second:
            return pod
        departure = replayed.departure
        if departure is not None:
            departure += self._second - replayed.arrival
        replayed = msgspec.structs.replace(replayed, arrival=self._second, departure=departure)
        return msgspec.structs.replace(pod, replay=replayed)

    def _state(self, pods: tuple[RecordedPod, ...]) -> ClusterState:
        state, course = self._recorded.state, self._recorded.course
        claims = {
            key: claim for key, claim in state.claims.items() if allocation_of(claim) is not None
        }
        for pod in course.pods:
            for claim in pod.claims:
                claims.pop(claim_name(claim), None)
        running: dict[Name, Pod] = {}
        for pod in pods:
            if pod.node:
                metadata = pod.replay.pod.metadata
                running[metadata.namespace, metadata.name] = pod.replay.pod
                claims |= _by_name(pod.claims)
        nodes = tuple(self._nodes.values())
        return msgspec.structs.replace(
            state,
            nodes=nodes,
            pods=running,
            claims=claims,
            classes=self._classes,
            slices=tuple(self._slices.values()),
        )


def _bound(pod: Pod, node: str) -> Pod:
    spec = msgspec.structs.replace(pod.spec, node_name=node)
    return msgspec.structs.replace(pod, spec=spec)


def _by_name(claims: tuple[ResourceClaim, ...]) -> dict[Name, ResourceClaim]:
    return {claim_name(claim): claim for claim in claims}
