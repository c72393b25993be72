"""CronJobs, CronWorkflows of Argo, and Jobs that start pods with devices while a plan is run. Pure."""

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from answers.model.views import decode_view
from findings.text import join_names, printable
from kube.api.core import Pod
from kube.api.workloads import pod_path, resolve_path
from kube.manifests.source import SourceObject
from migration.assessment.assessed_cluster import AssessedCluster
from migration.assessment.outcomes import AssessedWorkload, Outcome
from migration.cluster.evidence import list_at, mapping_at
from migration.cluster.owners import OwnerKey, controller
from migration.cluster.workloads import Workload
from migration.plan.facts.ready_pods import node_of
from migration.plan.facts.rollouts import starts_on_schedule
from migration.plan.facts.taken_back import TakenBack
from migration.plan.model.plan import PlannedWork, Wave
from migration.plan.search.usable_nodes import EligibleNodes

_MAX_SCHEDULE: Final = 64
"""Characters of a schedule that a note shows."""
_ONE_RUN: Final = frozenset({"Forbid", "Replace"})
"""Values of concurrencyPolicy that leave a run out where another one has not ended."""
_PATCH: Final = '--patch={"spec":{"suspend":true}}'
_RUNS: Final = {
    "CronJob": (("jobTemplate", "spec"), "Job"),
    "CronWorkflow": (("workflowSpec",), "Workflow"),
}
"""Kind to the path in its spec of the spec of a run, and to the kind of that."""
_CRON_WORKFLOW: Final = "CronWorkflow"
_ARGO: Final = "argoproj.io/"
_NAMES: Final = 8
"""The most Jobs that a note names."""


class _Job(NamedTuple):
    """A Job that creates other pods, as `Kind/namespace/name`; it fails when one is evicted, or survives that."""

    name: str
    fails: bool


def with_cron_jobs(
    waves: Sequence[Wave],
    cluster: AssessedCluster,
    groups: Mapping[str, Workload],
    usable: Mapping[str, frozenset[str]],
    *,
    work: Mapping[str, Iterable[PlannedWork]],
    taken_back: TakenBack,
    objects: Iterable[SourceObject],
) -> Iterator[Wave]:
    """Yield the waves with notes on CronJobs that are not suspended, and on Jobs that go on, with devices on their nodes.

    Their next pods may begin on nodes of a wave, before it and in it. A CronJob or a CronWorkflow is named on the first wave
    that it has to wait for, a Job on each where pods of it may run that are not there today.

    Args:
        waves: The waves, in order.
        cluster: The cluster with its workloads.
        groups: Workload, as `Kind/namespace/name`, to its owner and its pods.
        usable: Workload to the nodes with devices of its classes that its pods may use today. They may begin on others that
            offer their keys, too.
        work: Node to the pods that lose something when they are evicted, as of today.
        taken_back: The systems that take back changes of workloads.
        objects: The cluster's objects, with the CronWorkflows of runs.
    """
    notes: dict[int, list[str]] = {}
    schedules = _read_schedules(groups, objects)
    nodes_of_runs: dict[str, frozenset[str]] = {}
    for reference, entry in schedules.items():
        earlier = nodes_of_runs.get(entry.key.reference, frozenset())
        nodes_of_runs[entry.key.reference] = earlier | _own_nodes(groups[reference])
    noted_schedules: set[str] = set()
    jobs_of_wave: dict[int, list[_Job]] = {}
    eligible = EligibleNodes(cluster)
    followed = {item.pod: item for items in work.values() for item in items if item.followed}
    for workload in cluster.workloads:
        group = groups.get(workload.key.reference)
        scheduled = schedules.get(workload.key.reference)
        schedule = _schedule(scheduled) if scheduled is not None else ""
        jobs = _jobs(workload, followed)
        if group is None or not (schedule or jobs):
            continue
        nodes = _next_nodes(workload, group, eligible, usable)
        for owner, pods in jobs.items():
            job = _Job(owner, fails=any(item.fails_job for item in pods))
            for number in _touching(workload, nodes.difference(item.node for item in pods), waves):
                jobs_of_wave.setdefault(number, []).append(job)
        if scheduled is None or not schedule or scheduled.key.reference in noted_schedules:
            continue
        run_nodes = nodes | nodes_of_runs[scheduled.key.reference]
        if numbers := _touching(workload, run_nodes, waves):
            noted_schedules.add(scheduled.key.reference)
            remaining = _remaining(run_nodes, waves, numbers[-1])
            is_served = workload.outcome is Outcome.NATIVE or any(
                eligible.offers((key,), remaining) for key in workload.keys
            )
            which = f"wave {', '.join(map(str, numbers))}"
            if len(numbers) == len(waves):
                which = "each wave"
            notes.setdefault(numbers[0], []).append(
                f"{scheduled.key.reference} starts pods with devices at {schedule}: the switch.sh of {which} asks about runs on "
                "its nodes, or waits for their end (--job-timeout), and one that begins meanwhile "
                f"{_course(scheduled, numbers[-1], taken_back, is_served=is_served)}"
            )
    for wave in waves:
        job_notes = _job_notes(jobs_of_wave.get(wave.wave, ()))
        yield replace(wave, notes=(*wave.notes, *notes.get(wave.wave, ()), *job_notes))


def _jobs(
    workload: AssessedWorkload, followed: Mapping[str, PlannedWork]
) -> dict[str, list[PlannedWork]]:
    """Return the Jobs of a workload that scripts wait for, and that create other pods then, with their pods of today.

    Args:
        workload: The workload.
        followed: Pods with others to come, as `Pod/namespace/name`.
    """
    jobs: dict[str, list[PlannedWork]] = {}
    for name in sorted(workload.members):
        item = followed.get("/".join(("Pod", *name)))
        if item is not None and item.waits:
            jobs.setdefault(item.owner, []).append(item)
    return jobs


def _job_notes(jobs: Collection[_Job]) -> Iterator[str]:
    """Yield a note on the next pods of some Jobs, and one on those of Jobs that fail with an evicted pod.

    A large cluster has hundreds of them, with pods on nodes of hundreds of waves.
    """
    for fails in (False, True):
        names = [job.name for job in jobs if job.fails is fails]
        own, them, verb = (
            ("the", "its", "creates") if len(names) == 1 else ("its", "their", "create")
        )
        failing = f", and one that is evicted fails {own} Job" if fails else ""
        if names:
            yield (
                f"{join_names(names, _NAMES)} {verb} other pods when {them} pods end, and these may run on nodes of this wave by then: "
                f"switch.sh asks about them, or waits for their end (--job-timeout){failing}"
            )


def _next_nodes(
    workload: AssessedWorkload,
    group: Workload,
    eligible: EligibleNodes,
    usable: Mapping[str, frozenset[str]],
) -> frozenset[str]:
    """Return the nodes that the next pods of a workload may use."""
    if workload.result is None:
        return _taking(workload, group, eligible)
    return usable.get(workload.key.reference, frozenset()) | eligible.offering(workload)


def _touching(
    workload: AssessedWorkload, nodes: Collection[str], waves: Iterable[Wave]
) -> list[int]:
    """Return the numbers of the waves with nodes that the next pods of a workload may use.

    Once these get claims they begin on switched nodes only.
    """
    numbers = []
    for wave in waves:
        if any(node.name in nodes for node in wave.nodes):
            numbers.append(wave.wave)
        if workload.outcome is not Outcome.NATIVE and workload.key.namespace in wave.namespaces:
            break
    return numbers


def _taking(workload: AssessedWorkload, group: Workload, eligible: EligibleNodes) -> frozenset[str]:
    """Return the nodes that take the next pods of a workload that is not translated, and offer some of its keys.

    All of them take a pod that cannot be read, and offer what a workload without known keys requests.
    """
    template: object = None
    if group.owner is not None:
        path = pod_path(group.owner.api_version, group.owner.kind)
        _, template = resolve_path(group.owner.document, path or ())
    pod = decode_view(template, Pod) if isinstance(template, Mapping) else None
    names = eligible.taking_pod(pod) if isinstance(pod, Pod) else eligible.names
    if not workload.keys:
        return names
    return frozenset(
        name for name in names if any(eligible.offers((key,), (name,)) for key in workload.keys)
    )


def _own_nodes(group: Workload) -> frozenset[str]:
    """Return the nodes of the pods of a workload."""
    return frozenset(name for name in map(node_of, group.pods) if isinstance(name, str) and name)


def _remaining(nodes: Collection[str], waves: Iterable[Wave], last: int) -> frozenset[str]:
    """Return those of some nodes that no wave up to a number switches."""
    switched = (node.name for wave in waves if wave.wave <= last for node in wave.nodes)
    return frozenset(nodes).difference(switched)


def _course(group: Workload, last: int, taken_back: TakenBack, *, is_served: bool) -> str:
    """Return the course of a run that begins in a wave of its nodes, and the advice for a person.

    A suspended CronJob leaves runs out as well, so to suspend it is of use only where a run fails, or never ends.

    Args:
        group: The CronJob, or the CronWorkflow, with its pods.
        last: The number of the last of these waves.
        taken_back: The systems that take back changes of workloads.
        is_served: A node serves its device keys after that wave, too; only pods of after it may have claims.

    Source:
        kubernetes/kubernetes, pkg/controller/cronjob/cronjob_controllerv2.go, syncCronJob (Forbid, Replace);
        pkg/controller/job/job_controller.go, pastActiveDeadline.
    """
    spec = _spec(group)
    parents, run = _RUNS[group.key.kind]
    deadline = mapping_at(spec, *parents).get("activeDeadlineSeconds")
    policy = spec.get("concurrencyPolicy")
    resource, place = group.key.kind.lower(), f"--namespace={group.key.namespace}"
    merge = () if group.custom is None else ("--type=merge",)
    words = ("kubectl", "patch", resource, group.key.name, place, *merge, _PATCH)
    suspend = f"suspend it first ({shlex.join(words)}) and set suspend to false after"
    back = taken_back.text((group.key.reference,), "suspend")
    if isinstance(deadline, int) and not isinstance(deadline, bool):
        return (
            f"may fail, since its wait for a device counts for activeDeadlineSeconds ({deadline}): run these scripts between two runs, "
            f"or {suspend} wave {last}{back}"
        )
    if not is_served:
        return (
            f"waits for a free device; one of wave {last} with device keys may find none after it, and waits until its {run} is "
            f"deleted: run that script between two runs, or {suspend} it{back}"
        )
    if isinstance(policy, str) and policy in _ONE_RUN:
        return (
            "waits for a free device; if it waits until the next one, one of both may be left out, as while a "
            f"{group.key.kind} is suspended (concurrencyPolicy: {policy}): run these scripts between two runs where each counts"
        )
    return "waits for a free device: it need not be suspended"


def _read_schedules(
    groups: Mapping[str, Workload], objects: Iterable[SourceObject]
) -> dict[str, Workload]:
    """Return workload to the one with its schedule: a CronJob or a CronWorkflow itself, or the CronWorkflow of a run.

    The pods of a run are of its Workflow, which has templates of its own.
    """
    cron_workflows = {
        (source.namespace or "default", source.name): source
        for source in objects
        if source.kind == _CRON_WORKFLOW and source.api_version.startswith(_ARGO)
    }
    schedules: dict[str, Workload] = {}
    for reference, group in groups.items():
        if group.key.kind == "CronJob" or starts_on_schedule(group):
            schedules[reference] = group
        owner = controller(group.custom) if group.custom is not None and group.pods else None
        if owner is None or owner[0] != _CRON_WORKFLOW:
            continue
        source = cron_workflows.get((group.key.namespace, owner[1]))
        if source is not None:
            key = OwnerKey(kind=_CRON_WORKFLOW, namespace=group.key.namespace, name=owner[1])
            schedules[reference] = replace(group, key=key, custom=source)
    return schedules


def _schedule(group: Workload) -> str:
    """Return the schedule of a CronJob, or a CronWorkflow, that is not suspended; empty for others."""
    spec = _spec(group)
    is_halted = group.custom is not None and spec.get("suspend") is True
    if (group.owner, group.custom) == (None, None) or group.is_suspended or is_halted:
        return ""
    schedules = (spec.get("schedule"), *list_at(spec, "schedules"))
    times = [entry for entry in schedules if isinstance(entry, str) and entry]
    zone = spec.get("timeZone") or spec.get("timezone")
    text = " ".join((", ".join(times), *([zone] if isinstance(zone, str) else ())))
    unknown = "times of its schedule" if group.custom is not None else ""
    return printable(text[:_MAX_SCHEDULE]) if times else unknown


def _spec(group: Workload) -> Mapping[str, Any]:
    """Return the spec of a CronJob, or of a CronWorkflow."""
    source = group.owner or group.custom
    return mapping_at(source.document, "spec") if source is not None else {}
