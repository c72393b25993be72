"""What is to be said of each object of a manifest: the decisions of `drawbridge check`, pure.

Legacy pods are translated as the webhook would, then everything is judged by the rules that the
webhook asks. Classes, slices and policies of `-f` join what is known of the cluster.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from allocator.core.model import Features
from allocator.pod_claims import allocation_of
from cli.inputs import Inputs
from cli.manifests import TEMPLATE_KIND, Translated, translated
from cli.objects import Placed, joined, of_kind, placed
from cli.reading import STATE_KINDS, viewed, viewed_pod
from cli.report import Reported, namespace_of
from cli.state import State, state_of
from kube.api.core import Namespace, Node, Pod
from kube.api.meta import ObjectHead, ObjectMeta
from kube.api.policy import in_force
from kube.api.resource import ResourceClaim, ResourceClaimTemplate, ResourceSlice
from kube.files import SourceObject
from webhook.findings import Finding, Severity
from webhook.judgement import of_later_pods
from webhook.rules.context import Context
from webhook.rules.emptied import Emptied
from webhook.rules.inventory import Inventory
from webhook.rules.judge import VIEWS, Judged, judge
from webhook.workloads import JUDGED, pod_path, reached
from webhook.world import Onlooker

_GROWERS: Final = {
    Onlooker.CLUSTER_AUTOSCALER: "a cluster autoscaler",
    Onlooker.KARPENTER: "Karpenter",
}
_CLAIM_KINDS = frozenset({"ResourceClaim", "ResourceClaimTemplate"})


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of one object.

    Attributes:
        reference: `Kind/namespace/name`.
        findings: With paths from the root of the object, worst first.
    """

    source: SourceObject
    reference: str
    findings: tuple[Finding, ...] = ()


def checked(inputs: Inputs) -> list[Checked]:
    """Return what is said of each given object, in order."""
    results = translated(
        inputs.given, world=inputs.world, options=inputs.options, namespace=inputs.namespace
    )
    context = context_of(inputs)
    return [
        Checked(
            source=result.source,
            reference=result.reference,
            findings=_worst_first(
                (*_of_translation(result), *_of_rules(result, context, inputs.namespace))
            ),
        )
        for result in results
    ]


def reported(results: Iterable[Checked]) -> list[Reported]:
    """Return every finding with its object, in order."""
    return [
        Reported(object=result.reference, finding=finding)
        for result in results
        for finding in result.findings
    ]


def context_of(inputs: Inputs) -> Context:
    """Return what rules may know: the state of the cluster, with the given objects in it."""
    everything = joined(inputs.snapshot, inputs.given, inputs.namespace)
    known, _ = placed(everything, STATE_KINDS, inputs.namespace)
    state = state_of(known)
    return Context(
        classes=state.classes,
        inventory=Inventory(one for _, one in of_kind(known, ResourceSlice)),
        policies=tuple(in_force(state.policies).values()),
        claims=_asked_by(known, ResourceClaim, lambda one: one.spec.devices),
        templates=_asked_by(known, ResourceClaimTemplate, lambda one: one.spec.spec.devices),
        namespaces={
            one.metadata.name: one.metadata.labels or {} for _, one in of_kind(known, Namespace)
        },
        knows_classes=inputs.world.classes is not None,
        knows_claims=any(one.kind in _CLAIM_KINDS for one in inputs.snapshot),
        is_settled=True,
        emptied=Emptied(
            slices=state.slices,
            nodes=_nodes(state),
            classes=state.classes,
            rules=state.rules(Features()),
        ),
        present=state.cluster(Features()),
        allocated=frozenset(name for name, one in state.claims.items() if allocation_of(one)),
        growers=frozenset(
            word for onlooker, word in _GROWERS.items() if onlooker in inputs.world.onlookers
        ),
    )


def _nodes(state: State) -> tuple[Node, ...]:
    """Return the nodes; where none is known, one that has only what slices give to all of them."""
    return state.nodes or (Node(metadata=ObjectMeta(name="any")),)


def _asked_by(known: Sequence[Placed], kind: Any, devices: Any) -> Mapping[tuple[str, str], Any]:
    return {(place, one.metadata.name): devices(one) for place, one in of_kind(known, kind)}


def _worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    rank = list(Severity)
    return tuple(sorted(findings, key=lambda finding: rank.index(finding.severity)))


# --- one object -----------------------------------------------------------------------------------


def _of_translation(result: Translated) -> Iterator[Finding]:
    """Yield what the webhook would say while it translates, as who applies the object hears it."""
    kind = (result.source.api_version, result.source.kind)
    head = viewed(result.source.document, ObjectHead)
    owners = head.metadata.owner_references if isinstance(head, ObjectHead) else None
    is_controlled = any(owner.controller for owner in owners or ())
    for finding in result.findings:
        told = of_later_pods(finding) if kind in JUDGED else finding
        if is_controlled and told.is_error:
            told = msgspec.structs.replace(told, severity=Severity.WARNING)
        yield told


def _of_rules(result: Translated, context: Context, namespace: str) -> Iterator[Finding]:
    place = namespace_of(result.source, namespace)
    own = _judged(result.source, place)
    if own is None:
        return
    yield from judge(own, context)
    # A translation knows of missing classes, too.
    told = {finding.code for finding in result.findings}
    for template in result.templates:
        made = _judged_template(template, own)
        for finding in (one for one in judge(made, context) if one.code not in told):
            at = f"{own.path}.spec.resourceClaims" if own.path else "spec.resourceClaims"
            said = f"{template['metadata']['name']}: {finding.path}: {finding.message}"
            yield msgspec.structs.replace(finding, path=at, message=said)


def _judged(found: SourceObject, namespace: str) -> Judged | None:
    """Return an object as it is judged; None for other kinds, and for what cannot be read."""
    head = viewed(found.document, ObjectHead)
    if isinstance(head, Finding):
        return None
    kind = (found.api_version, found.kind)
    path = pod_path(*kind)
    if path is not None:
        _, document = reached(found.document, path)
        pod = viewed_pod(document) if document is not None else None
        if not isinstance(pod, Pod):
            return None
        return Judged(
            view=pod,
            raw=document,
            path=".".join(path),
            metadata=head.metadata,
            namespace=namespace,
        )
    view_type = VIEWS.get(kind, ObjectHead)
    value = viewed(found.document, view_type)
    if isinstance(value, Finding):
        return None
    return Judged(view=value, raw=found.document, metadata=head.metadata, namespace=namespace)


def _judged_template(document: Mapping[str, Any], pod: Judged) -> Judged:
    """Return a template that a translation made, judged as who made the pod is."""
    value = viewed(document, VIEWS[TEMPLATE_KIND])
    if isinstance(value, Finding):
        raise TypeError(f"a translation made no {TEMPLATE_KIND[1]}: {value.message}")
    return Judged(view=value, raw=document, metadata=pod.metadata, namespace=pod.namespace)
