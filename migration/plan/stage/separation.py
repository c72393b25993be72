"""Rules that keep pods apart: required anti-affinity between pods, and topology spread with `DoNotSchedule`. Pure.

They count for pods that get claims: one with device keys cannot return to a node once that is switched. Pods of whole
devices can. Not modelled: required affinity that brings pods together, and pods without devices that rules name.

Source: k8s.io/kubernetes v1.37.1, pkg/scheduler/framework/plugins/{interpodaffinity,podtopologyspread}.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from allocator.pods.node_eligibility import is_eligible
from answers.model.views import decode_view
from kube.api.core import Affinity, Node, Pod, PodSpec, Toleration
from kube.api.meta import LabelSelector, LabelSelectorRequirement
from kube.api.workloads import DAEMON_SET
from migration.assessment.capacity import build_pods
from migration.assessment.outcomes import AssessedWorkload, Outcome, translated_pod
from migration.cluster.evidence import list_at, mapping_at
from migration.plan.model.node_labels import with_labels
from migration.plan.stage.stage import PlannedPod, Stage

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_EVERY_TAINT: Final = (Toleration(operator="Exists"),)


class _Template(NamedTuple):
    """The pods of a workload, as rules see them."""

    workload: AssessedWorkload
    pod: Pod

    @property
    def name(self) -> str:
        """Return the workload, as `Kind/namespace/name`."""
        return self.workload.key.reference

    @property
    def is_kept(self) -> bool:
        """Return True if rules count for its pods; those of a DaemonSet have their own nodes."""
        key = self.workload.key
        return self.workload.outcome is not Outcome.NATIVE and key.kind != DAEMON_SET


class Spread(NamedTuple):
    """A constraint of topology spread.

    Attributes:
        key: The label of nodes whose values are its domains.
        min_domains: The number of domains from which on the smallest counts as it is.
        own: The number that a pod adds to its domain; 0 if the selector does not match it.
        workloads: The workloads whose pods count.
        chooses: A pod that the nodes with domains take.
    """

    key: str
    max_skew: int
    min_domains: int
    own: int
    workloads: frozenset[str]
    chooses: Pod


class PodSeparation:
    """The rules between the pods of a cluster that keep them apart."""

    def __init__(self, workloads: Iterable[AssessedWorkload], nodes: Mapping[str, Node]) -> None:
        """Read the rules.

        Args:
            workloads: The workloads whose pods are placed.
            nodes: All nodes of the cluster by name.
        """
        self._nodes = nodes
        templates = [
            _Template(workload, pod)
            for workload in workloads
            for pod in build_pods(msgspec.structs.replace(workload, pods=1))
        ]
        by_namespace: dict[str, list[_Template]] = {}
        for template in templates:
            by_namespace.setdefault(template.workload.key.namespace, []).append(template)
        self._apart: dict[str, dict[str, set[str]]] = {}
        for template in templates:
            for term in _anti_affinity(template.pod):
                self._add_term(template, term, _templates_of(term, template, by_namespace))
        self._spreads = {
            template.name: spreads
            for template in templates
            if template.is_kept and (spreads := tuple(_spreads(template, by_namespace)))
        }
        self._stage: Stage | None = None
        self._domains: dict[tuple[str, int], Mapping[str, str]] = {}

    def _add_term(
        self, template: _Template, term: Mapping[str, Any], others: Iterable[_Template]
    ) -> None:
        """Keep pods of a workload from those that a term of it matches, and these from them."""
        key, selector = str(term.get("topologyKey", "")), _selector(term, template.pod)
        for other in others:
            if selector is not None and selector.matches(other.pod.labels):
                for comes, stays in ((template, other), (other, template)):
                    if comes.is_kept:
                        own = self._apart.setdefault(comes.name, {})
                        own.setdefault(key, set()).add(stays.name)

    def keeps(self, pod: PlannedPod) -> bool:
        """Return True if rules keep a pod from nodes, by the pods there."""
        return pod.key.workload in self._apart or pod.key.workload in self._spreads

    def rules(self, workload: str) -> tuple[str, ...]:
        """Return the rules for the pods of a workload, in words."""
        anti = (f"podAntiAffinity by {key}" for key in sorted(self._apart.get(workload, ())))
        spreads = (
            f"topologySpreadConstraints by {spread.key}"
            for spread in self._spreads.get(workload, ())
        )
        return (*anti, *spreads)

    def apart(self, workload: str) -> Mapping[str, Collection[str]]:
        """Return label to the workloads that share no value of it with pods of a workload."""
        return self._apart.get(workload, {})

    def spreads(self, workload: str) -> Sequence[Spread]:
        """Return the constraints of the pods of a workload."""
        return self._spreads.get(workload, ())

    def label(self, node: str, key: str) -> tuple[str, ...]:
        """Return the value of a label of a node, or nothing without it."""
        labels = self._nodes[node].labels if node in self._nodes else {}
        return (labels[key],) if key in labels else ()

    def domains(self, workload: str, number: int, stage: Stage) -> Mapping[str, str]:
        """Return node to its domain, of those that count for a constraint of a workload at a stage."""
        if self._stage is not stage:
            self._stage, self._domains = stage, {}
        if (workload, number) not in self._domains:
            spreads = self._spreads[workload]
            keys, spread = [entry.key for entry in spreads], spreads[number]
            self._domains[workload, number] = {
                name: node.labels[spread.key]
                for name, own in self._nodes.items()
                if all(key in own.labels for key in keys)
                and is_eligible(spread.chooses, node := _at(own, stage))
            }
        return self._domains[workload, number]


def _at(node: Node, stage: Stage) -> Node:
    """Return a node with the labels of its switch, once that is done."""
    name = node.metadata.name
    return with_labels(node, stage.labels.get(name, {})) if name in stage.switched else node


def _anti_affinity(pod: Pod) -> Sequence[Mapping[str, Any]]:
    affinity = pod.spec.affinity
    terms = list_at(affinity.pod_anti_affinity, _REQUIRED) if affinity is not None else ()
    return [term for term in terms if isinstance(term, Mapping)]


def _templates_of(
    term: Mapping[str, Any],
    template: _Template,
    by_namespace: Mapping[str, Sequence[_Template]],
) -> Iterator[_Template]:
    """Yield the templates of the namespaces of a term; of a selector of namespaces, all."""
    names: Iterable[str] = list_at(term, "namespaces") or (template.workload.key.namespace,)
    if term.get("namespaceSelector") is not None:
        # That may count too many pods, and then holds too much.
        names = by_namespace
    for name in dict.fromkeys(map(str, names)):
        yield from by_namespace.get(name, ())


def _selector(rule: Mapping[str, Any], pod: Pod) -> LabelSelector | None:
    """Return the selector of a rule with the labels of its pod that it takes over; None if it selects nothing."""
    if rule.get("labelSelector") is None:
        return None
    selector = decode_view(mapping_at(rule, "labelSelector"), LabelSelector)
    if not isinstance(selector, LabelSelector):
        return None
    taken_over = tuple(
        LabelSelectorRequirement(key=key, operator=operator, values=(pod.labels[key],))
        for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
        for key in map(str, list_at(rule, field))
        if key in pod.labels
    )
    own = selector.match_expressions or ()
    return msgspec.structs.replace(selector, match_expressions=(*own, *taken_over))


def _spreads(
    template: _Template, by_namespace: Mapping[str, Sequence[_Template]]
) -> Iterator[Spread]:
    """Yield the constraints of a workload's pods that keep pods from nodes."""
    result = template.workload.result
    document = translated_pod(result) if result is not None else None
    spec = template.pod.spec
    for rule in list_at(mapping_at(document, "spec"), "topologySpreadConstraints"):
        if not isinstance(rule, Mapping) or rule.get("whenUnsatisfiable") == "ScheduleAnyway":
            continue
        selector = _selector(rule, template.pod)
        # Those of a wave that are switched first have no taint while the others are drained, so all count.
        honors_taints = rule.get("nodeTaintsPolicy") == "Honor"
        chooses = PodSpec(tolerations=spec.tolerations if honors_taints else _EVERY_TAINT)
        if rule.get("nodeAffinityPolicy") != "Ignore":
            affinity = Affinity(
                node_affinity=spec.affinity.node_affinity if spec.affinity else None
            )
            chooses = msgspec.structs.replace(
                chooses, node_selector=spec.node_selector, affinity=affinity
            )
        yield Spread(
            key=str(rule.get("topologyKey", "")),
            max_skew=_number(rule, "maxSkew"),
            min_domains=_number(rule, "minDomains"),
            own=int(selector is not None and selector.matches(template.pod.labels)),
            workloads=frozenset(
                other.name
                for other in by_namespace[template.workload.key.namespace]
                if selector is not None and selector.matches(other.pod.labels)
            ),
            chooses=Pod(spec=chooses),
        )


def _number(rule: Mapping[str, Any], field: str) -> int:
    """Return a number of a constraint, 1 by default."""
    value = rule.get(field)
    return value if isinstance(value, int) else 1
