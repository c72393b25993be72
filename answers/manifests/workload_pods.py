"""The pods that workloads of manifests will have, and those that they have already. Pure."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from allocator.declarations.read import VOLCANO_MIN_MEMBER, VOLCANO_NAME
from answers.manifests.job_groups import job_group_name
from answers.model.cluster_state import ClusterState, build_state
from answers.model.findings import namespace_of
from answers.model.inputs import Inputs
from answers.model.kinds import STATE_KINDS
from answers.model.objects import decode_objects
from answers.model.pod_owners import is_made_by
from kube.api.core import FINISHED_PHASES, Pod
from kube.api.workloads import pod_path, pods_at_a_time, resolve_path
from kube.manifests.source import SourceObject
from translation.reading.custom_workloads import (
    EmbeddedPod,
    embedded_pods,
    value_at,
    workload_kind,
)

MAX_PODS: Final = 500
"""The maximum number of pods of one workload; every pod is placed alone."""
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_VOLCANO_JOBS: Final = "batch.volcano.sh"
_CRON_JOB: Final = "CronJob"
_WITHOUT: Final = frozenset({"Pod", "PodTemplate", "DaemonSet"})
"""Kinds whose pods depend on the nodes, or which make none."""


def has_countable_pods(source: SourceObject) -> bool:
    """Return True if an object tells by itself the number of its pods."""
    custom = workload_kind(source.api_version, source.kind)
    if custom is not None:
        return custom.has_claims and custom.numbers is not None
    return source.kind not in _WITHOUT and bool(pod_path(source.api_version, source.kind))


def workload_pods(
    source: SourceObject, document: Mapping[str, Any], namespace: str, existing: int
) -> Iterator[SourceObject]:
    """Yield the pods that a workload has to make yet, named after it and numbered.

    Of a CronJob these are the pods of one run.

    Of a workload with several templates each pod has the name of its part, too: `train-worker-0`.

    Args:
        source: The workload of the manifests, which the pods have file and line of.
        document: It after its translation.
        namespace: The workload's namespace.
        existing: The pods that it has already.
    """
    number = 0
    gang = _volcano_gang(source, document)
    group = job_group_name(source, document)
    numbers_by_part: Counter[str] = Counter()
    for template in _templates(source, document):
        name = f"{source.name}-{template.part}" if template.part else source.name
        # Nothing bounds the number of pods in a manifest, so those that are left out are not counted one by one.
        first = max(existing - number, 0)
        end = min(template.pods, existing + MAX_PODS - number)
        for index in range(first, end):
            pod_template = _in_group(template.document, group)
            pod = f"{name}-{numbers_by_part[template.part] + index}"
            yield _pod(source, pod_template, gang, pod, namespace)
        numbers_by_part[template.part] += template.pods
        number += template.pods


class _Template(NamedTuple):
    """A pod template of a workload, and the number of its pods at a time.

    Attributes:
        part: The name of its part among several, such as that of a replicatedJob; empty for others.
    """

    document: Mapping[str, Any]
    pods: int
    part: str = ""


def _templates(source: SourceObject, document: Mapping[str, Any]) -> Iterator[_Template]:
    """Yield each pod template."""
    custom = workload_kind(source.api_version, source.kind)
    if custom is not None:
        several = tuple(embedded_pods(custom, document))
        for embedded in several:
            part = part_name(embedded.path, document) if len(several) > 1 else ""
            yield _Template(embedded.template, embedded.number, part)
        return
    path, template = resolve_path(document, pod_path(source.api_version, source.kind) or ())
    if path and isinstance(template, Mapping):
        yield _Template(template, _pods_of_run(source, document))


def part_name(path: Sequence[str | int], document: Mapping[str, Any]) -> str:
    """Return the name of a part of a workload, by its item in a list or by its field; empty if it is no label.

    >>> part_name(("spec", "jobs", 0, "template"), {"spec": {"jobs": [{"name": "actor"}]}})
    'actor'
    >>> part_name(("spec", "headGroupSpec", "template"), {})
    'head'
    """
    place = next((at for at, step in enumerate(path) if isinstance(step, int)), None)
    item = None if place is None else value_at(document, path[: place + 1])
    if isinstance(item, Mapping):
        name = item.get("name") or item.get("groupName")
    else:
        name = next((step for step in reversed(path) if step != "template"), "")
        name = str(name).removesuffix("Template").removesuffix("GroupSpec").removesuffix("Pod")
    text = name.lower() if isinstance(name, str) else ""
    return text if _LABEL.fullmatch(text) else ""


def _pods_of_run(source: SourceObject, document: Mapping[str, Any]) -> int:
    """Return the number of pods at a time; of a CronJob those of one of its Jobs."""
    if source.kind != _CRON_JOB:
        return pods_at_a_time(source.kind, document)
    _, job = resolve_path(document, ("spec", "jobTemplate"))
    return pods_at_a_time("Job", job) if isinstance(job, Mapping) else 1


def _volcano_gang(source: SourceObject, document: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the annotations of a Volcano Job's pods for Volcano's PodGroup; none for other kinds.

    Where the Job does not say how many pods it needs, each task does, or all of its pods are needed. Source:
    volcano-sh/volcano, pkg/controllers/job/job_controller_util.go; pkg/webhooks/admission/jobs/mutate,
    patchDefaultMinAvailable.
    """
    spec = document.get("spec")
    kind = workload_kind(source.api_version, source.kind)
    is_job = source.api_version.partition("/")[0] == _VOLCANO_JOBS
    if kind is None or not is_job or not isinstance(spec, Mapping):
        return {}
    minimum = spec.get("minAvailable")
    if minimum is None or minimum == 0:
        minimum = sum(_minimum_of_task(pod, document) for pod in embedded_pods(kind, document))
    if minimum == 0:
        return {}  # Volcano starts each pod by itself.
    return {VOLCANO_NAME: source.name, VOLCANO_MIN_MEMBER: str(minimum)}


def _minimum_of_task(pod: EmbeddedPod, document: Mapping[str, Any]) -> int:
    """Return the number of pods of a task that its Volcano Job needs."""
    minimum = value_at(document, (*pod.path[:-1], "minAvailable"))
    return minimum if type(minimum) is int else pod.number


def _in_group(template: Mapping[str, Any], group: str | None) -> Mapping[str, Any]:
    """Return the template of a pod that is in a PodGroup; the same without one."""
    spec = template.get("spec")
    if group is None or not isinstance(spec, Mapping):
        return template
    return {**template, "spec": {**spec, "schedulingGroup": {"podGroupName": group}}}


def _pod(
    source: SourceObject,
    template: Mapping[str, Any],
    annotations: Mapping[str, str],
    name: str,
    namespace: str,
) -> SourceObject:
    metadata = template.get("metadata")
    own_metadata = {
        name: value
        for name, value in (metadata.items() if isinstance(metadata, Mapping) else ())
        if name in {"labels", "annotations"}
    }
    if annotations:
        own_annotations = own_metadata.get("annotations")
        own_metadata["annotations"] = {
            **(own_annotations if isinstance(own_annotations, Mapping) else {}),
            **annotations,
        }
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**own_metadata, "name": name, "namespace": namespace},
        "spec": template.get("spec") or {},
    }
    return SourceObject(document=document, source=source.source, line=source.line)


def count_pods_of(source: SourceObject, namespace: str, state: ClusterState) -> int:
    """Return the number of a workload's live pods in a cluster."""
    return sum(
        _is_made_by(pod, source)
        for (pod_namespace, _), pod in state.pods.items()
        if pod_namespace == namespace
    )


def count_new_pods(inputs: Inputs, sources: Sequence[SourceObject]) -> list[int]:
    """Return for each object the number of pods at a time that it adds to the cluster; 1 for others."""
    before, _ = decode_objects(inputs.state, STATE_KINDS, inputs.namespace)
    state = build_state(before)
    return [
        1
        if count_pods_of(source, namespace_of(source, inputs.namespace), state)
        else pods_at_a_time(source.kind, source.document)
        for source in sources
    ]


def _is_made_by(pod: Pod, source: SourceObject) -> bool:
    if pod.status is not None and pod.status.phase in FINISHED_PHASES:
        return False
    return is_made_by(pod, source.kind, source.name)
