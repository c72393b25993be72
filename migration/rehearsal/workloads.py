"""The workloads of a rehearsal, with their volumes and the places of their pods. Pure."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from findings.text import count_text
from kube.api.meta import encode
from kube.manifests.source import SourceObject
from migration.cluster.evidence import list_at, mapping_at, text_map
from migration.cluster.owners import controller
from migration.cluster.volumes import HOSTNAME, Volumes, claim_names
from migration.cluster.workloads import Workload
from migration.rehearsal.documents import (
    EVERY_HOST,
    KINDS,
    KUBERNETES_TAINTS,
    STATEFUL_SET,
    bare_pod,
    bound_claim,
    claim_prefixes,
    on_host,
    ordinals,
    volume_name,
    with_claims,
    workload,
)


class RehearsedWorkloads:
    """The workloads that are created, one after the other.

    Attributes:
        workloads: Their documents.
        volumes: PersistentVolumes that not all nodes reach, each with its PersistentVolumeClaim.
        places: `Kind/namespace/name` of a workload, or of a StatefulSet's pod, to the nodes of its pods.
        pods: Namespace and name of the pods that they stand for.
        left_out: The parts that are not rehearsed, with the reasons, in sentences.
        pods_left_out: Namespace and name of the pods of workloads that are named there.
    """

    def __init__(
        self, objects: Iterable[SourceObject], namespace: str, priorities: frozenset[str]
    ) -> None:
        """Take the cluster that the workloads are of.

        Args:
            objects: The cluster's objects.
            namespace: The namespace for objects that name none.
            priorities: The PriorityClasses of the cluster.
        """
        self.workloads: list[Mapping[str, Any]] = []
        self.volumes: list[Mapping[str, Any]] = []
        self.places: dict[str, tuple[str, ...]] = {}
        self.pods: set[tuple[str, str]] = set()
        self.left_out: list[str] = []
        self.pods_left_out: set[tuple[str, str]] = set()
        self._priorities = priorities
        self._known_volumes = Volumes(objects, namespace)
        self._hostnames: dict[str, str] = {}
        self._selectors: dict[tuple[str, str], Mapping[str, Any]] = {}
        self._jobs: dict[tuple[str, str], SourceObject] = {}
        for source in objects:
            if source.kind == "Node":
                labels = text_map(source.document, "metadata", "labels")
                self._hostnames[source.name] = labels.get(HOSTNAME, source.name)
            elif (source.api_version, source.kind) == ("batch/v1", "Job"):
                self._jobs[source.namespace or namespace, source.name] = source

    def add(self, group: Workload) -> None:
        """Add a workload with its volumes, or the reason that it is left out."""
        reference, namespace = group.key.reference, group.key.namespace
        created = self._document(group)
        if created is None:
            self.left_out.append(
                f"{reference} with {count_text(group.pod_count, 'pod')}: Kubernetes itself does not run this kind, so "
                "the devices that it uses are free here from the beginning"
            )
            self.pods_left_out.update((namespace, pod.name) for pod in group.pods)
            return
        self._add(self._with_volumes(created, group), group)
        self.pods.update((namespace, pod.name) for pod in group.pods)
        # It is created suspended, so it starts no Job itself.
        for job, pods in self._runs(group) if group.key.kind == "CronJob" else ():
            if job is None:
                self.left_out.append(
                    f"{reference}: {count_text(len(pods), 'pod')}, of no Job that is known"
                )
                continue
            key = msgspec.structs.replace(group.key, kind="Job", name=job.name)
            run = Workload(key=key, owner=job, pods=pods)
            document = workload(job.document, self._priorities, *_chosen(run))
            self._add(self._with_volumes(document, run), run)

    def _add(self, created: Mapping[str, Any], group: Workload) -> None:
        self.workloads.append(in_namespace(created, group.key.namespace))
        if group.key.kind != STATEFUL_SET:
            self.places[group.key.reference] = _nodes_of(group.pods)
            return
        # The pods have their names again, and with them their volumes.
        for pod in group.pods:
            self.places[f"Pod/{group.key.namespace}/{pod.name}"] = _nodes_of([pod])

    def _document(self, group: Workload) -> dict[str, Any] | None:
        """Return a workload as it is created; None for a kind that nothing runs here."""
        if group.key.kind == "Pod":
            pod = next((pod for pod in group.pods if pod.name == group.key.name), None)
            return bare_pod(pod.document, self._priorities) if pod is not None else None
        if group.owner is None or group.key.kind not in KINDS:
            return None
        return workload(group.owner.document, self._priorities, *_chosen(group))

    def _with_volumes(self, created: dict[str, Any], group: Workload) -> dict[str, Any]:
        """Return a workload with the volumes of its pods that not all nodes reach, and take these over."""
        namespace = group.key.namespace
        if group.key.kind == "CronJob":
            return created
        selectors = self._selectors_of_claims(group)
        if selectors is None:
            self.left_out.append(
                f"{group.key.reference}: its PersistentVolumes, of which some are not of all its "
                f"{count_text(len(set(_nodes_of(group.pods))), 'node')}: a pod that is evicted may come back on another node"
            )
        if not selectors:
            return created
        document = (group.owner or group.pods[0]).document
        for claim in _claims_beside(document, selectors):
            selector = self._selector_of_claim(namespace, claim, ())
            selectors.setdefault(claim, selector or EVERY_HOST)
        for claim, selector in sorted(selectors.items()):
            volume = self._known_volumes.name(namespace, claim) or volume_name(namespace, claim)
            self._selectors[namespace, claim] = selector
            self.volumes += bound_claim(namespace, claim, volume, selector)
        return with_claims(created, document, selectors)

    def _selectors_of_claims(self, group: Workload) -> dict[str, Mapping[str, Any]] | None:
        """Return the PersistentVolumeClaims of a workload with volumes that some nodes do not reach, each with its nodes.

        Returns:
            Claim to node selector. None if not all of the workload's nodes reach each of the volumes: a pod of those that are
            created is not known to be one of before, but for a StatefulSet's. None, too, if another workload has the
            volume on another node.
        """
        namespace = group.key.namespace
        of_all = frozenset(_nodes_of(group.pods))
        nodes_of: dict[str, frozenset[str]] = {}
        for pod in group.pods:
            own = frozenset(_nodes_of([pod])) if group.key.kind == STATEFUL_SET else of_all
            for claim in claim_names(mapping_at(pod.document, "spec")):
                nodes_of[claim] = nodes_of.get(claim, frozenset()) | own
        selectors: dict[str, Mapping[str, Any]] = {}
        for claim, nodes in sorted(nodes_of.items()):
            selector = self._selector_of_claim(namespace, claim, nodes)
            if selector is None:
                return None
            if selector != self._selectors.get((namespace, claim), selector):
                return None
            if selector:
                selectors[claim] = selector
        return selectors

    def _selector_of_claim(
        self, namespace: str, claim: str, nodes: Collection[str]
    ) -> Mapping[str, Any] | None:
        """Return the nodes of a claim's volume, empty if all reach it; None if some of these nodes do not."""
        volumes = self._known_volumes
        selector = volumes.selector(namespace, claim)
        if selector is not None:
            is_reached = volumes.reached_by(selector).issuperset(nodes)
            return json.loads(encode(selector)) if is_reached else None
        if not volumes.is_of_one_node(namespace, claim):
            return {}
        if len(nodes) != 1:
            return None
        return on_host([self._hostnames.get(name, name) for name in nodes])

    def _runs(
        self, cron_job: Workload
    ) -> Iterator[tuple[SourceObject | None, tuple[SourceObject, ...]]]:
        """Yield the Jobs of a CronJob that run, each with its pods; last None with pods of no Job that is known."""
        namespace = cron_job.key.namespace
        runs: dict[str, list[SourceObject]] = {}
        for pod in cron_job.pods:
            owner = controller(pod)
            name = owner[1] if owner is not None and owner[0] == "Job" else ""
            runs.setdefault(name if (namespace, name) in self._jobs else "", []).append(pod)
        for name, pods in sorted(runs.items(), reverse=True):
            yield self._jobs.get((namespace, name)), tuple(pods)


def in_namespace(document: Mapping[str, Any], namespace: str) -> dict[str, Any]:
    """Return an object in a namespace."""
    return {**document, "metadata": {**document["metadata"], "namespace": namespace}}


def _chosen(group: Workload) -> tuple[str, tuple[Mapping[str, Any], ...]]:
    """Return the scheduler and the tolerations of a workload's pods, maybe chosen by an admission."""
    return _scheduler_of(group), tuple(_tolerations_of(group))


def _tolerations_of(group: Workload) -> Iterator[Mapping[str, Any]]:
    """Yield the tolerations of all pods of a workload, without those that Kubernetes gives to every pod."""
    by_pod = [list_at(pod.document, "spec", "tolerations") for pod in group.pods]
    for toleration in by_pod[0] if by_pod else ():
        key = str(mapping_at(toleration).get("key") or "")
        is_of_all = all(toleration in tolerations for tolerations in by_pod)
        if is_of_all and not key.startswith(KUBERNETES_TAINTS):
            yield toleration


def _scheduler_of(group: Workload) -> str:
    """Return the scheduler of a workload's pods, maybe chosen by a webhook; empty if they differ."""
    names = {str(mapping_at(pod.document, "spec").get("schedulerName") or "") for pod in group.pods}
    return names.pop() if len(names) == 1 else ""


def _claims_beside(document: Mapping[str, Any], claims: Collection[str]) -> list[str]:
    """Return the claims that a StatefulSet makes of the templates of some; its pods would wait for one without a volume."""
    name = str(mapping_at(document, "metadata").get("name"))
    return [
        f"{prefix}{ordinal}"
        for prefix in claim_prefixes(document, name)
        if any(claim.startswith(prefix) for claim in claims)
        for ordinal in ordinals(document)
    ]


def _nodes_of(pods: Iterable[SourceObject]) -> tuple[str, ...]:
    """Return the nodes of pods, one for each pod that has one."""
    return tuple(sorted(filter(None, map(_node_of, pods))))


def _node_of(pod: SourceObject) -> str:
    return str(mapping_at(pod.document, "spec").get("nodeName") or "")
