"""A recording as it would have been with a migration at a moment, or with another driver from then on.

Until the moment everything is as it was. Then nodes offer their devices by the driver that serves the keys, pods with device
keys that run start anew with claims, as the steps of a plan restart them, and those that come are translated.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from allocator.pods.claims import Name, allocation_of, claim_name
from allocator.replay.recorded import Bound, Changed, Course, Event, RecordedPod
from allocator.replay.workload import ReplayPod
from answers.manifests.replay_pods import ReplayPodBuilder, unbound
from answers.model.cluster_state import ClusterState
from answers.model.findings import DEFAULT_NAMESPACE
from answers.model.translation_snapshot import build_snapshot
from answers.recording.course import RecordedCluster
from answers.recording.later import begin_at
from findings.text import count_text
from kube.api.core import Namespace
from kube.api.meta import ApiStruct, ObjectMeta
from kube.manifests.source import ViewedObject
from kube.names import REQUEST_ANNOTATION
from migration.assessment.outcomes import translating_every_pod
from migration.replay.devices import OfferedDevices
from migration.replay.pods import PodTranslator, TranslatedPod
from translation.cluster.snapshot import TranslationOptions, TranslationSnapshot
from translation.profiles.profile import Profile
from translation.record.record import RecordError, decode_record

MAX_DENIALS: Final = 5
"""Reasons of denials that notes name."""


class MovedCluster(msgspec.Struct, frozen=True, kw_only=True):
    """A recording with a migration.

    Attributes:
        moved: The recording as it would have been, from the moment on.
        happened: The recording as it was, from the moment on; pods that start anew are bound at once where they ran.
        restarted: Pods that ran at the moment and start anew.
    """

    moved: RecordedCluster
    happened: RecordedCluster
    restarted: int


class AmbiguousMove(ValueError):
    """Devices of a recorded driver would go to several drivers; the message names them."""


def move(
    recorded: RecordedCluster,
    second: float,
    profiles: Mapping[str, Profile],
    options: TranslationOptions,
) -> MovedCluster:
    """Return a recording with a migration.

    Args:
        recorded: The recording.
        second: The second of the migration.
        profiles: Driver to profile.
        options: The drivers that serve the vocabularies then.

    Raises:
        AmbiguousMove: Vocabularies that one recorded driver served are given to several drivers.
    """
    before = begin_at(recorded, second)
    drivers = moved_drivers(before.course.pods, options)
    offered = OfferedDevices(profiles, options.profiles, drivers, frozenset(before.state.classes))
    nodes, slices = offered.begin(before.state.nodes, before.state.slices)
    changes = tuple(_changes(before.course.changes, offered))
    # Classes of devices that come later are there from the beginning, as those of a driver's chart are.
    classes = {**offered.classes, **before.state.classes}
    state = msgspec.structs.replace(before.state, nodes=nodes, slices=slices, classes=classes)
    translator = PodTranslator(_snapshot(state, profiles), options)
    return _Move(before, second, state, changes, drivers).with_pods(translator)


def moved_drivers(pods: Iterable[RecordedPod], options: TranslationOptions) -> Mapping[str, str]:
    """Return the drivers that served the keys of pods and do no more, to those that do.

    Raises:
        AmbiguousMove: Vocabularies that one of them served are given to several drivers.
    """
    moved: dict[str, str] = {}
    for vocabulary, driver in sorted(_recorded_drivers(pods)):
        after = options.profiles.get(vocabulary, driver)
        before = moved.setdefault(driver, after)
        if before != after:
            raise AmbiguousMove(
                f"{driver} served several vocabularies, and its devices can be those of {before} or of {after}, not of "
                f"both: choose one driver for all of them with --profile VOCABULARY=DRIVER"
            )
    return {before: after for before, after in moved.items() if before != after}


def _recorded_drivers(pods: Iterable[RecordedPod]) -> set[tuple[str, str]]:
    """Return vocabulary and driver of each translation in a recording."""
    texts = {pod.replay.pod.annotations.get(REQUEST_ANNOTATION) for pod in pods} - {None}
    drivers: set[tuple[str, str]] = set()
    for text in texts:
        try:
            drivers |= set(decode_record(text or "").drivers().items())
        except RecordError:
            continue  # The translator counts such pods.
    return drivers


class _Move:
    """The pods of a recording from the moment on, sorted into those that stay and those that come."""

    def __init__(
        self,
        before: RecordedCluster,
        second: float,
        state: ClusterState,
        changes: tuple[Changed, ...],
        drivers: Mapping[str, str],
    ) -> None:
        self._before = before
        self._second = second
        self._state = state
        self._changes = changes
        self._drivers = drivers

    def with_pods(self, translator: PodTranslator) -> MovedCluster:
        """Return the recording with its pods as the translator makes them."""
        pods = self._before.course.pods
        translated = [translator.translate(pod) for pod in pods]
        restarted = {
            number
            for number, pod in enumerate(pods)
            if pod.node and (translated[number] is not None or self._has_moved_devices(pod))
        }
        order = sorted(range(len(pods)), key=lambda n: (not pods[n].node or n in restarted, n))
        state = self._state_without(restarted)
        builder = ReplayPodBuilder(state)
        happened: list[RecordedPod] = []
        moved: list[RecordedPod] = []
        for number in order:
            pod, result = pods[number], translated[number]
            as_it_was = self._restarted(pod) if number in restarted else pod
            happened.append(as_it_was)
            replayed = as_it_was.replay
            if result is not None:
                replayed = _with_claims(replayed, result, builder)
            moved.append(msgspec.structs.replace(as_it_was, replay=replayed))
        until = self._before.course.until
        notes = (*self._before.notes, *self._notes(translated, translator))
        return MovedCluster(
            moved=msgspec.structs.replace(
                self._before,
                state=state,
                course=Course(
                    pods=tuple(moved), events=self._changes, until=until, begin=self._second
                ),
                notes=notes,
            ),
            happened=msgspec.structs.replace(
                self._before,
                state=self._without(self._before.state, restarted),
                course=Course(
                    pods=tuple(happened),
                    events=tuple(self._events(order, restarted)),
                    until=until,
                    begin=self._second,
                ),
            ),
            restarted=len(restarted),
        )

    def _restarted(self, pod: RecordedPod) -> RecordedPod:
        """Return a pod that runs as one that comes at the moment, and leaves when it left."""
        replayed = msgspec.structs.replace(
            pod.replay, pod=unbound(pod.replay.pod), arrival=self._second
        )
        # No scheduler is asked about it, as far as the recording goes.
        return msgspec.structs.replace(pod, replay=replayed, node="", claims=(), is_fixed=True)

    def _events(self, order: list[int], restarted: set[int]) -> Iterator[Event]:
        """Yield the recorded events; pods that start anew are bound at once to their node."""
        places = {number: place for place, number in enumerate(order)}
        pods = self._before.course.pods
        for number in sorted(restarted):
            yield Bound(
                second=self._second,
                number=places[number],
                node=pods[number].node,
                claims=pods[number].claims,
                is_dated=False,
            )
        for event in self._before.course.events:
            if isinstance(event, Changed):
                yield event
            else:
                yield msgspec.structs.replace(event, number=places[event.number])

    def _has_moved_devices(self, pod: RecordedPod) -> bool:
        return any(
            result.driver in self._drivers
            for claim in pod.claims
            if (allocation := allocation_of(claim)) is not None
            for result in allocation.devices.results or ()
        )

    def _state_without(self, restarted: set[int]) -> ClusterState:
        return self._without(self._state, restarted)

    def _without(self, state: ClusterState, restarted: set[int]) -> ClusterState:
        """Return a cluster without pods that start anew, and their claims."""
        pods = [self._before.course.pods[number] for number in restarted]
        names: set[Name] = {
            (pod.replay.pod.metadata.namespace, pod.replay.pod.metadata.name) for pod in pods
        }
        staying = {
            claim_name(claim)
            for number, pod in enumerate(self._before.course.pods)
            if pod.node and number not in restarted
            for claim in pod.claims
        }
        claims = {claim_name(claim) for pod in pods for claim in pod.claims} - staying
        return msgspec.structs.replace(
            state,
            pods={name: pod for name, pod in state.pods.items() if name not in names},
            claims={name: claim for name, claim in state.claims.items() if name not in claims},
        )

    @staticmethod
    def _notes(
        translated: Iterable[TranslatedPod | None], translator: PodTranslator
    ) -> Iterator[str]:
        denials = Counter(pod.denial for pod in translated if pod is not None and pod.denial)
        for denial, count in denials.most_common(MAX_DENIALS):
            yield f"denied: {count_text(count, 'pod')}: {denial}"
        if len(denials) > MAX_DENIALS:
            yield f"denied: more pods, for {count_text(len(denials) - MAX_DENIALS, 'more reason')}"
        if translator.unrestored:
            yield (
                f"{count_text(translator.unrestored, 'pod')} keep their claims, since what they were translated from is "
                "not known to this version"
            )


def _with_claims(
    replayed: ReplayPod, result: TranslatedPod, builder: ReplayPodBuilder
) -> ReplayPod:
    if result.denial:
        return msgspec.structs.replace(replayed, is_denied=True)
    shared = {claim_name(claim): claim.metadata.name for claim in replayed.shared}
    built = builder.build(result.pod, result.claims, shared)
    return msgspec.structs.replace(
        replayed, pod=built.pod, claims=built.claims, shared=built.shared
    )


def _changes(changes: Iterable[Changed], offered: OfferedDevices) -> Iterator[Changed]:
    for event in changes:
        nodes, slices = offered.change(event.nodes, event.slices)
        classes = event.classes
        if classes is not None:
            classes = {**offered.classes, **classes}
        yield Changed(second=event.second, nodes=nodes, slices=tuple(slices), classes=classes)


def _snapshot(state: ClusterState, profiles: Mapping[str, Profile]) -> TranslationSnapshot:
    """Return a snapshot without resource names that classes map, so that every pod is translated."""
    objects = [
        *(_viewed("ResourceSlice", slice_) for slice_ in state.slices),
        *(_viewed("DeviceClass", class_) for class_ in state.classes.values()),
        *(
            ViewedObject(
                api_version="v1",
                kind="Namespace",
                value=Namespace(metadata=ObjectMeta(name=name, labels=labels)),
                source="",
            )
            for name, labels in state.namespaces.items()
        ),
    ]
    snapshot, _ = build_snapshot(profiles, (), objects, namespace=DEFAULT_NAMESPACE)
    return translating_every_pod(snapshot)


def _viewed(kind: str, value: ApiStruct) -> ViewedObject:
    return ViewedObject(
        api_version="resource.k8s.io/v1", kind=kind, value=value, source="the recording"
    )
