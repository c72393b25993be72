"""Rules that keep pods apart: required anti-affinity between pods, and topology spread with `DoNotSchedule`. Pure.

They count for pods that get claims: one with device keys cannot return to a node once that is switched. Pods of whole
devices can. Not modelled: required affinity that brings pods together, and pods without devices that rules name.

Source: k8s.io/kubernetes v1.37.1, pkg/scheduler/framework/plugins/{interpodaffinity,podtopologyspread}.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

import msgspec

from allocator.pods.node_eligibility import is_eligible
from answers.model.views import decode_view
from kube.api.core import Affinity, Node, Pod, PodSpec, Toleration
from kube.api.meta import LabelSelector, LabelSelectorRequirement, encode
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


class _Selected:
    """The pods of workloads that selectors match, each selector asked once, and only about pods that it may match."""

    def __init__(self, templates: Iterable[_Template]) -> None:
        """Index pods by namespace and by label."""
        self._by_namespace: dict[str, list[_Template]] = {}
        self._by_label: dict[tuple[str, str, str], list[_Template]] = {}
        self._names: dict[tuple[tuple[str, ...], bytes], frozenset[str]] = {}
        for template in templates:
            namespace = template.workload.key.namespace
            self._by_namespace.setdefault(namespace, []).append(template)
            for key, value in template.pod.labels.items():
                self._by_label.setdefault((namespace, key, value), []).append(template)

    @property
    def namespaces(self) -> Collection[str]:
        """Return all namespaces with pods."""
        return self._by_namespace.keys()

    def names(self, namespaces: Iterable[str], selector: LabelSelector | None) -> frozenset[str]:
        """Return the workloads of namespaces with pods that a selector matches; none without a selector."""
        if selector is None:
            return frozenset()
        question = tuple(namespaces), encode(selector)
        if question not in self._names:
            self._names[question] = frozenset(
                template.name
                for namespace in question[0]
                for template in self._candidates(namespace, selector)
                if selector.matches(template.pod.labels)
            )
        return self._names[question]

    def _candidates(self, namespace: str, selector: LabelSelector) -> Iterable[_Template]:
        """Return the pods of a namespace with a label that a selector asks for: of the one that fewest have; all without one."""
        choices: list[tuple[str, tuple[str, ...]]] = [
            (key, (value,)) for key, value in (selector.match_labels or {}).items()
        ]
        choices += [
            (entry.key, entry.values or ())
            for entry in selector.match_expressions or ()
            if entry.operator == "In"
        ]
        labelled = [
            [self._by_label.get((namespace, key, value), []) for value in values]
            for key, values in choices
        ]
        if not labelled:
            return self._by_namespace.get(namespace, ())
        fewest = min(labelled, key=lambda lists: sum(map(len, lists)))
        return chain.from_iterable(fewest)


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
        selected = _Selected(templates)
        self._apart = _apart(templates, selected)
        self._spreads = {
            template.name: spreads
            for template in templates
            if template.is_kept and (spreads := tuple(_spreads(template, selected)))
        }
        self._not_counted = frozenset(
            template.name
            for template in templates
            if not template.is_kept
            and (_anti_affinity(template.pod) or any(_spreads(template, selected)))
        )
        self._stage: Stage | None = None
        self._domains: dict[tuple[str, int], Mapping[str, str]] = {}

    def keeps(self, pod: PlannedPod) -> bool:
        """Return True if rules keep a pod from nodes, by the pods there."""
        return pod.key.workload in self._apart or pod.key.workload in self._spreads

    def leaves_out(self, workload: str) -> bool:
        """Return True if the pods of a workload have rules that do not count here, as native ones have."""
        return workload in self._not_counted

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


def _apart(
    templates: Sequence[_Template], selected: _Selected
) -> dict[str, dict[str, frozenset[str]]]:
    """Return workload to label to the workloads that its pods share no value with, by terms of theirs or of these.

    A term keeps the pods that it matches from those of its workload, and these from them. Workloads with equal terms are
    looked at together.
    """
    owners: dict[tuple[str, frozenset[str]], set[str]] = {}
    for template in templates:
        for term in _anti_affinity(template.pod):
            others = selected.names(
                _namespaces_of(term, template, selected), _selector(term, template.pod)
            )
            owners.setdefault((str(term.get("topologyKey", "")), others), set()).add(template.name)
    counted = {template.name for template in templates if template.is_kept}
    apart: dict[str, dict[str, frozenset[str]]] = {}
    for (key, others), own in owners.items():
        for coming, staying in ((own, others), (others, frozenset(own))):
            for name in counted.intersection(coming) if staying else ():
                by_label = apart.setdefault(name, {})
                by_label[key] = by_label.get(key, frozenset()) | staying
    return apart


def _namespaces_of(
    term: Mapping[str, Any], template: _Template, selected: _Selected
) -> Iterable[str]:
    """Return the namespaces of a term; of a selector of namespaces, all."""
    if term.get("namespaceSelector") is not None:
        # That may count too many pods, and then holds too much.
        return selected.namespaces
    names = list_at(term, "namespaces") or (template.workload.key.namespace,)
    return dict.fromkeys(map(str, names))


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


def _spreads(template: _Template, selected: _Selected) -> Iterator[Spread]:
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
            workloads=selected.names((template.workload.key.namespace,), selector),
            chooses=Pod(spec=chooses),
        )


def _number(rule: Mapping[str, Any], field: str) -> int:
    """Return a number of a constraint, 1 by default."""
    value = rule.get(field)
    return value if isinstance(value, int) else 1
