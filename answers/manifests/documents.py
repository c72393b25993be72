"""The JSON of simulations and of pods and claims, as values that scripts may rely on. Pure."""

import msgspec

from allocator.explain.failure import NodeResult
from allocator.explain.trace import PlacementTrace
from allocator.pods.claims import Missing
from allocator.simulation.model import PlacedClaim, PlacedGroup, PlacedPod, SimulationResult
from answers.cluster.inventory import PluginResource
from answers.cluster.pending_workload import PodsTogether, WorkloadStatus
from answers.cluster.why import ObjectStatus
from answers.manifests.removal import RemovedPod


class FailedScheduling(msgspec.Struct, frozen=True, kw_only=True):
    """The event of kube-scheduler about a pod that was not placed.

    Attributes:
        object: `Pod namespace/name`.
        message: Its message, without what it says about preemption.
    """

    object: str
    message: str


class SimulationAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A simulation; its fields are those of `SimulationResult`.

    Attributes:
        failed_scheduling: The events of kube-scheduler about the pods that were not placed; absent
            without any. None is of a pod whose claims are missing, or whose attempt ends with an error.
        groups: The groups of the pods; absent without any.
    """

    claims: tuple[PlacedClaim, ...]
    pods: tuple[PlacedPod, ...]
    nodes: tuple[NodeResult, ...]
    error: str | None
    failed_scheduling: tuple[FailedScheduling, ...] | msgspec.UnsetType = msgspec.field(
        name="failedScheduling", default=msgspec.UNSET
    )
    groups: tuple[PlacedGroup, ...] | msgspec.UnsetType = msgspec.UNSET


class DeniedObject(msgspec.Struct, frozen=True):
    """An object of the manifests that `check` denies, as `Kind/namespace/name`, with the reason."""

    object: str
    reason: str


class SimulateAnswer(SimulationAnswer, frozen=True, kw_only=True):
    """The document of `drawbridge simulate -o json`.

    Attributes:
        without: The pods that were left out; absent without `--without`.
        denials: The objects of the manifests that `check` denies, beside those that are rejected here; absent
            without any.
        trace: The first placements, stage by stage; not with `--node`.
        plugin_resources: The offers of device plugins where no driver publishes devices, which no claim can use;
            absent elsewhere.
    """

    trace: tuple[PlacementTrace, ...] = ()
    without: tuple[RemovedPod, ...] | msgspec.UnsetType = msgspec.UNSET
    denials: tuple[DeniedObject, ...] | msgspec.UnsetType = msgspec.UNSET
    plugin_resources: tuple[PluginResource, ...] | msgspec.UnsetType = msgspec.field(
        name="pluginResources", default=msgspec.UNSET
    )


class PendingSimulation(SimulationAnswer, frozen=True, kw_only=True, rename="camel"):
    """The simulation of one pending pod or claim.

    Attributes:
        closest_fit: The smallest change with which it would fit now.
        closest_fit_when_idle: The closest fit if nothing were allocated.
    """

    closest_fit: str | None = None
    closest_fit_when_idle: str | None = None


class WhyAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `drawbridge why -o json`, with the fields of `ObjectStatus`."""

    kind: str
    namespace: str
    name: str
    condition: str
    node: str | None
    claims: tuple[PlacedClaim, ...]
    consumers: tuple[str, ...]
    missing: tuple[Missing, ...]
    simulation: PendingSimulation | None
    scheduler: str | None
    conflicts: tuple[str, ...]
    requested: tuple[str, ...]
    held_back: tuple[str, ...] = msgspec.field(name="heldBack")
    kept_for_groups: tuple[str, ...] = msgspec.field(name="keptForGroups")
    quotas: tuple[str, ...]
    promised: tuple[str, ...]
    advice: tuple[str, ...]
    gate: str | None
    fenced: tuple[str, ...]
    unreadable: tuple[str, ...] = ()
    event: str | None
    cause: str | None
    rejection: str | None
    denial: str
    untranslated: str | None


class PendingPodsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Pods that wait for the same reasons; fields as of `PendingPods`."""

    pods: tuple[str, ...]
    answer: WhyAnswer


class WhyWorkloadAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `drawbridge why WORKLOAD -o json`, with the fields of `WorkloadStatus`."""

    kind: str
    namespace: str
    name: str
    pods: int
    pending: tuple[PendingPodsAnswer, ...]
    not_explained: int = msgspec.field(name="notExplained")
    not_created: tuple[str, ...] = msgspec.field(name="notCreated")
    quotas: tuple[str, ...]
    advice: str
    together: PodsTogether | None
    denial: str


def simulation_answer(result: SimulationResult) -> SimulationAnswer:
    """Return a simulation for scripts."""
    return SimulationAnswer(
        claims=result.claims,
        pods=result.pods,
        nodes=result.nodes,
        error=result.error,
        failed_scheduling=_events(result),
        groups=result.groups or msgspec.UNSET,
    )


def why_answer(status: ObjectStatus) -> WhyAnswer:
    """Return the state of a pod or claim for scripts."""
    return WhyAnswer(
        kind=status.kind,
        namespace=status.namespace,
        name=status.name,
        condition=status.condition,
        node=status.node,
        claims=status.claims,
        consumers=status.consumers,
        missing=status.missing,
        simulation=_pending(status.simulation),
        event=status.event,
        cause=status.cause,
        held_back=status.held_back,
        kept_for_groups=status.kept_for_groups,
        quotas=status.quotas,
        promised=status.promised,
        advice=status.advice,
        gate=status.gate,
        fenced=status.fenced,
        scheduler=status.scheduler,
        conflicts=status.conflicts,
        requested=status.requested,
        unreadable=status.unreadable,
        rejection=status.rejection,
        denial=status.denial,
        untranslated=status.untranslated,
    )


def why_workload_answer(workload: WorkloadStatus) -> WhyWorkloadAnswer:
    """Return the pending pods of a workload for scripts."""
    return WhyWorkloadAnswer(
        kind=workload.kind,
        namespace=workload.namespace,
        name=workload.name,
        pods=workload.pods,
        pending=tuple(
            PendingPodsAnswer(pods=group.pods, answer=why_answer(group.status))
            for group in workload.pending
        ),
        not_explained=workload.not_explained,
        not_created=workload.not_created,
        quotas=workload.quotas,
        advice=workload.advice,
        together=workload.together,
        denial=workload.denial,
    )


def _pending(result: SimulationResult | None) -> PendingSimulation | None:
    if result is None:
        return None
    failure = result.failures[-1] if result.failures else None
    fits = (failure.closest_fit, failure.closest_fit_when_idle) if failure else (None, None)
    now, idle = (fit.fix if fit is not None else None for fit in fits)
    return PendingSimulation(
        claims=result.claims,
        pods=result.pods,
        nodes=result.nodes,
        error=result.error,
        failed_scheduling=_events(result),
        groups=result.groups or msgspec.UNSET,
        closest_fit=now,
        closest_fit_when_idle=idle,
    )


def _events(result: SimulationResult) -> tuple[FailedScheduling, ...] | msgspec.UnsetType:
    events = tuple(
        FailedScheduling(object=failure.title, message=failure.event)
        for failure in result.failures
        if failure.event is not None
    )
    return events or msgspec.UNSET
