"""Replays of pods on the state of a cluster: their strategies, seeds and policies. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from string import digits
from typing import Final

import msgspec

from allocator.cluster.cluster import Cluster
from allocator.features.co_tenant_config import UNIFORM_CONFIG_DRIVERS
from allocator.features.consumer_limits import consumer_limits
from allocator.model.feature_gates import Features
from allocator.nodes.node_resources import with_unnamed_resources
from allocator.pods.claims import claim_name
from allocator.pods.node_eligibility import node_rejection
from allocator.replay.added_nodes import add_nodes, node_like
from allocator.replay.agreement import Agreement, compare
from allocator.replay.demand import Demand, DemandMeter
from allocator.replay.device_use import CapacityUse
from allocator.replay.profiles import DEFAULT_PROFILES, SchedulerProfiles
from allocator.replay.recorded import Changed, Course, Event
from allocator.replay.replay import replay
from allocator.replay.results import Gain, StrategyResult
from allocator.replay.scheduler import STOCK, STOCK_MOST_ALLOCATED
from allocator.replay.timeline import Recorder
from allocator.replay.workload import Inventory, Order, ReplayPod
from allocator.search.attempt import AllocatorOptions
from answers.manifests.replay_quotas import GivenQuotas, ReplayQuotas
from answers.model.cluster_state import ClusterState, is_running
from answers.recording.course import RecordedCluster
from cli.verbs.replay.replay_input import ReplayInput
from findings.text import join_names, printable
from kube.api.core import Node
from kube.api.extended_resources import extended_resources
from kube.api.ownership import driver_settings
from kube.api.resource import ResourceSlice
from kube.errors import DrawbridgeError
from rules.model.naming import find_similar_name
from sidecar.replay.decisions import DecidedAgain

_NAMED: Final = 10
"""Nodes that a message names."""
_STOCK: Final = frozenset({STOCK, STOCK_MOST_ALLOCATED})
"""Strategies of kube-scheduler, which knows no policies."""


class ReplayAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The document of `drawbridge replay`.

    Attributes:
        strategies: The results, one for each strategy and seed.
        input: The question: the cluster, the pods, and what was added.
        demand: The devices that the pods request; None if none does, or where pods leave and are never there together.
        recorded: The recorded placements beside the scores of the stock scheduler; None without a recording.
        decisions: The recorded decisions of the bridge, made again; None if none were recorded.
    """

    strategies: tuple[StrategyResult, ...]
    input: ReplayInput
    demand: Demand | None = None
    recorded: Agreement | None = None
    decisions: DecidedAgain | None = None


class UnknownNode(DrawbridgeError):
    """A node that the cluster does not have."""

    def __init__(self, name: str, names: Sequence[str]) -> None:
        closest = find_similar_name(name, names)
        hint = f"did you mean {closest}? " if closest else ""
        known_names = join_names(_one_of_each_kind(names), _NAMED) or "none"
        super().__init__(f"unknown node {name!r}; {hint}known are: {known_names}")


def _one_of_each_kind(names: Sequence[str]) -> Sequence[str]:
    """Return names, the first of each series of numbers before the others.

    >>> _one_of_each_kind(["a100-00", "a100-01", "l40s-00"])
    ['a100-00', 'l40s-00', 'a100-01']
    """
    firsts: dict[str, str] = {}
    for name in names:
        firsts.setdefault(name.rstrip(digits), name)
    return [*firsts.values(), *(name for name in names if name not in set(firsts.values()))]


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A replay that is to be done.

    Attributes:
        strategy: The name of the strategy.
        seed: Decides between equal nodes, and a shuffled order.
    """

    strategy: str
    seed: int


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """The pods and the cluster that all replays have in common.

    Attributes:
        pods: The pods.
        order: The order in which they arrive.
        inventory: The cluster before the first pod.
        options: The features and policies that the bridge evaluates.
        stock_options: The features and policies that kube-scheduler evaluates.
        profiles: The scores of nodes that the schedulers use.
        course: The recorded events of the cluster; None without a recording.
        recorded_course: The recorded events as they happened, where `course` is what would have been; else the same.
        recorded_inventory: The recorded cluster, without nodes that were added.
        state: The cluster before the first pod, with all of its objects.
        quotas: The quotas that hold pods back; None for none.
        inventory_as_it_is: The cluster without nodes that were added; None if none were.
    """

    pods: Sequence[ReplayPod]
    order: Order
    inventory: Inventory
    options: AllocatorOptions
    stock_options: AllocatorOptions
    profiles: SchedulerProfiles
    course: Course | None = None
    recorded_course: Course | None = None
    recorded_inventory: Inventory
    state: ClusterState
    quotas: GivenQuotas | None = None
    inventory_as_it_is: Inventory | None = None


def build_question(
    pods: Sequence[ReplayPod],
    order: Order,
    state: ClusterState,
    features: Features,
    *,
    profiles: SchedulerProfiles = DEFAULT_PROFILES,
    added: Sequence[tuple[int, str]] = (),
    course: Course | None = None,
    quotas: GivenQuotas | None = None,
    happened: RecordedCluster | None = None,
) -> Question:
    """Return the common input of all replays of these pods on a cluster.

    Args:
        pods: The pods.
        order: The order in which they arrive.
        state: The cluster.
        features: Feature gates.
        profiles: The scores of nodes that the schedulers use.
        added: Numbers of nodes to add, each with the name of a node that they are like.
        course: The recorded events after the state; None without a recording.
        quotas: The quotas that hold pods back; None for none.
        happened: The recording as it was, where state and course are what would have been; None where they are it.

    Raises:
        UnknownNode: There is no node of such a name.
    """
    options = state.rules(features, UNIFORM_CONFIG_DRIVERS)
    limits = consumer_limits(driver_settings(state.ownerships))
    inventory = _inventory(state, features)
    prepared = None if course is None else _prepared(course, state, features)
    recorded_inventory, recorded_course = inventory, prepared
    if happened is not None:
        recorded_inventory = _inventory(happened.state, features)
        recorded_course = _prepared(happened.course, happened.state, features)
    return Question(
        pods=pods,
        order=order,
        inventory=_with_nodes(inventory, added),
        recorded_inventory=recorded_inventory,
        recorded_course=recorded_course,
        course=prepared,
        options=msgspec.structs.replace(options, consumer_limits=limits),
        stock_options=state.rules(features, with_policies=False),
        profiles=profiles,
        state=state,
        quotas=quotas,
        inventory_as_it_is=inventory if added else None,
    )


def describe_unused(question: Question, added: Iterable[tuple[int, str]]) -> Iterator[str]:
    """Yield a note for each model of added nodes that is closed to all pods.

    Args:
        question: The pods and the cluster.
        added: Numbers of nodes that are added, each with the name of a node that they are like.
    """
    nodes = {node.metadata.name: node for node in question.inventory.nodes}
    for name in dict.fromkeys(name for _, name in added):
        like = node_like(nodes[name], f"{name}-added")
        reasons = Counter(_rejection(pod, like) for pod in question.pods)
        if reasons and not reasons[""]:
            (reason, _), *_others = reasons.most_common(1)
            yield printable(f"no pod can run on the nodes that are added like {name}: {reason}")


def _rejection(pod: ReplayPod, node: Node) -> str:
    """Return the reason a node rejects a pod, devices and resources aside; empty if it does not."""
    rejection = node_rejection(pod.pod, node)
    return "" if rejection is None else rejection.subject


def list_jobs(strategies: Iterable[str], seeds: int) -> Sequence[Job]:
    """Return the replays with each strategy and the seeds 0, 1, 2, ..., so many of them."""
    return [Job(strategy=name, seed=seed) for name in strategies for seed in range(seeds)]


def run_job(
    job: Job, question: Question, recorder: Recorder | None = None, *, keeps_places: bool = False
) -> StrategyResult:
    """Return the result of a replay, without its CPU time.

    Args:
        job: The replay.
        question: The input common to all replays.
        recorder: Samples the replay while it runs.
        keeps_places: The place of each pod is part of the result.
    """
    return replay(
        job.strategy,
        question.pods,
        question.inventory,
        order=question.order,
        seed=job.seed,
        options=question.stock_options if job.strategy in _STOCK else question.options,
        profiles=question.profiles,
        recorder=recorder,
        course=question.course,
        quotas=_charged(question),
        keeps_places=keeps_places,
    )


def with_gain(result: StrategyResult, job: Job, question: Question) -> StrategyResult:
    """Return a result beside that without the added nodes; the result itself if none were added."""
    if question.inventory_as_it_is is None:
        return result
    as_it_is = run_job(
        job, msgspec.structs.replace(question, inventory=question.inventory_as_it_is)
    )
    after, before = first_capacity(result), first_capacity(as_it_is)
    in_use: float = result.devices.in_use - as_it_is.devices.in_use
    percent: float | msgspec.UnsetType = msgspec.UNSET
    if result.over_time and as_it_is.over_time:
        in_use = result.over_time.mean_in_use - as_it_is.over_time.mean_in_use
        percent = result.over_time.mean_percent - as_it_is.over_time.mean_percent
    gain = Gain(
        pods=result.pods.placed - as_it_is.pods.placed,
        devices_in_use=in_use,
        mean_percent=percent,
        allocated=(after.allocated if after else 0.0) - (before.allocated if before else 0.0),
    )
    return msgspec.structs.replace(result, gain=gain)


def compare_recorded(question: Question) -> Agreement | None:
    """Return the recorded placements beside the scores of the stock scheduler; None without a recording."""
    if question.recorded_course is None:
        return None
    return compare(
        question.recorded_course,
        question.recorded_inventory,
        question.stock_options,
        question.profiles.stock,
    )


def measure_demand(question: Question) -> Demand | None:
    """Return the demand of the pods for devices; None without any, or with pods that leave."""
    leave = question.order is Order.ARRIVAL and any(
        pod.departure is not None for pod in question.pods
    )
    shared = {claim_name(claim): claim for pod in question.pods for claim in pod.shared}
    if leave or not (shared or any(pod.claims for pod in question.pods)):
        return None
    inventory = question.inventory_as_it_is or question.inventory
    cluster = Cluster(
        slices=inventory.slices,
        nodes=inventory.nodes,
        claims=(),
        classes=inventory.classes,
        options=question.options,
    )
    own = [pod.claims for pod in question.pods]
    return DemandMeter(cluster).demand((*own, *((claim,) for claim in shared.values())))


def first_capacity(result: StrategyResult) -> CapacityUse | None:
    """Return the capacity that counts; None if no device has any."""
    return result.capacities[0] if result.capacities else None


def headline_percent(result: StrategyResult) -> float | None:
    """Return the allocated share of the first capacity at the end, or its mean over time; None without any."""
    capacity = first_capacity(result)
    if capacity is None:
        return None
    return result.over_time.mean_percent if result.over_time else capacity.percent


def results_below(
    results: Iterable[StrategyResult], percent: float
) -> Iterator[tuple[StrategyResult, CapacityUse]]:
    """Yield the results with less of their first capacity allocated, with that capacity."""
    for result in results:
        capacity, share = first_capacity(result), headline_percent(result)
        if capacity is not None and share is not None and share < percent:
            yield result, capacity


def has_capacities(question: Question) -> bool:
    """Return True if any published device has a capacity."""
    return any(
        device.capacity
        for slice_ in question.inventory.slices
        for device in slice_.spec.devices or ()
    )


def _charged(question: Question) -> ReplayQuotas | None:
    """Return the quotas with the use of the first pod's moment; those of added nodes count from there on."""
    if question.quotas is None:
        return None
    state = msgspec.structs.replace(question.state, slices=question.inventory.slices)
    course = question.course
    if course is None:
        return ReplayQuotas(question.quotas, state)
    return ReplayQuotas(question.quotas, state, course.running_claims, course.shared_claims)


def _with_nodes(inventory: Inventory, added: Sequence[tuple[int, str]]) -> Inventory:
    names = sorted(node.metadata.name for node in inventory.nodes)
    for count, name in added:
        if name not in names:
            raise UnknownNode(name, names)
        inventory = add_nodes(inventory, name, count)
    return inventory


def _inventory(state: ClusterState, features: Features) -> Inventory:
    classes: Mapping[str, str] = extended_resources(state.classes.values())
    return Inventory(
        nodes=tuple(map(with_unnamed_resources, state.nodes)),
        slices=state.tainted_slices(features),
        classes=state.classes,
        claims=tuple(state.claims.values()),
        pods=tuple(filter(is_running, state.pods.values())),
        extended_resources=classes,
    )


def _prepared(course: Course, state: ClusterState, features: Features) -> Course:
    """Return a course with nodes and slices as `_inventory` has those of the state."""

    def tainted(slice_: ResourceSlice | None) -> ResourceSlice | None:
        if slice_ is None:
            return None
        return msgspec.structs.replace(state, slices=(slice_,)).tainted_slices(features)[0]

    def prepared(event: Event) -> Event:
        if not isinstance(event, Changed):
            return event
        nodes = {
            name: None if node is None else with_unnamed_resources(node)
            for name, node in event.nodes.items()
        }
        slices = tuple((tainted(before), tainted(after)) for before, after in event.slices)
        return msgspec.structs.replace(event, nodes=nodes, slices=slices)

    return msgspec.structs.replace(course, events=tuple(map(prepared, course.events)))
