"""What is to be said of each object of a manifest: the decisions of `drawbridge check`, pure.

Legacy pods are translated as the webhook would, then everything is judged by the rules that the
webhook asks. Classes, slices and policies of `-f` join what is known of the cluster.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from allocator.core.model import Features
from allocator.pod_claims import Name, allocation_of
from cli.asked import where_asked
from cli.inputs import Inputs
from cli.manifests import TEMPLATE_KIND, Translated, template, translated
from cli.objects import Placed, joined, of_kind, placed
from cli.reading import STATE_KINDS, viewed, viewed_pod
from cli.report import Reported, namespace_of
from cli.state import State, state_of
from kube.api.core import Namespace, Node, Pod
from kube.api.meta import ObjectHead, ObjectMeta
from kube.api.policy import in_force
from kube.api.resource import ResourceClaim, ResourceClaimTemplate, ResourceSlice
from kube.files import SourceObject
from webhook.claims import Claim
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
    context = context_of(inputs, results)
    written = {
        (namespace_of(result.source, inputs.namespace), result.source.name)
        for result in results
        if result.is_template
    }
    return [
        Checked(
            source=result.source,
            reference=result.reference,
            findings=_worst_first(
                (*_of_translation(result), *_of_rules(result, context, inputs.namespace, written))
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


def context_of(inputs: Inputs, results: Iterable[Translated]) -> Context:
    """Return what rules may know: the state of the cluster, with the given objects in it.

    Args:
        results: What became of the given objects; the templates that they need are there, too.
    """
    made = [
        msgspec.structs.replace(result.source, document=dict(each))
        for result in results
        for each in result.templates
    ]
    everything = joined(inputs.snapshot, (*inputs.given, *made), inputs.namespace)
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
            slices=_slices(state),
            nodes=_nodes(state),
            classes=state.classes,
            rules=state.rules(Features()),
        ),
        present=state.cluster(Features()),
        allocated=frozenset(name for name, one in state.claims.items() if allocation_of(one)),
        # Who knows no nodes does not know what their device plugins offer.
        extended_resources=inputs.world.extended_resources if state.has_nodes else {},
        growers=frozenset(
            word for onlooker, word in _GROWERS.items() if onlooker in inputs.world.onlookers
        ),
    )


def _nodes(state: State) -> tuple[Node, ...]:
    """Return the nodes; where none is known, one that has only what slices give to all of them."""
    return state.nodes or (Node(metadata=ObjectMeta(name="any")),)


def _slices(state: State) -> Iterator[ResourceSlice]:
    """Yield the slices; where no node is known, what is for some nodes counts for all of them."""
    for one in state.slices:
        if state.has_nodes or one.spec.node_selector is None:
            yield one
        else:
            spec = msgspec.structs.replace(one.spec, node_selector=None, all_nodes=True)
            yield msgspec.structs.replace(one, spec=spec)


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
        told = finding
        if kind in JUDGED:
            # Warnings of the API server have no place for the cure; here it has one of its own.
            later = of_later_pods(msgspec.structs.replace(finding, fix=""))
            told = msgspec.structs.replace(later, fix=finding.fix)
        if is_controlled and told.is_error:
            told = msgspec.structs.replace(told, severity=Severity.WARNING)
        yield told


def _of_rules(
    result: Translated, context: Context, namespace: str, written: Collection[Name]
) -> Iterator[Finding]:
    """Yield what rules say of an object, as its translation made it.

    Args:
        written: Templates among the given objects, which are judged in their place.
    """
    place = namespace_of(result.source, namespace)
    own = _judged(result.source, result.document or result.source.document, place)
    if own is None:
        return
    found = judge(own, context)
    # What is said of all claims of a pod is not said of each; and a translation knows of missing
    # classes, too.
    told = {finding.code for finding in (*result.findings, *found)}
    of_claims = (
        finding
        for claim in result.claims
        if (place, claim.template) not in written
        for finding in _of_claim(claim, own, context)
        if finding.code not in told
    )
    yield from (where_asked(finding, result) for finding in (*found, *of_claims))


def _of_claim(claim: Claim, own: Judged, context: Context) -> Iterator[Finding]:
    """Yield what rules say of a claim that a translation made, told of its pod."""
    at = f"{own.path}.spec.resourceClaims" if own.path else "spec.resourceClaims"
    for finding in judge(_judged_template(template(claim, own.namespace), own), context):
        said = f"{finding.path}: {finding.message}"
        yield msgspec.structs.replace(finding, path=at, message=said)


def _judged(found: SourceObject, document: Mapping[str, Any], namespace: str) -> Judged | None:
    """Return an object as it is judged; None for other kinds, and for what cannot be read.

    Args:
        document: What became of it.
    """
    head = viewed(document, ObjectHead)
    if isinstance(head, Finding):
        return None
    kind = (found.api_version, found.kind)
    path = pod_path(*kind)
    if path is not None:
        _, raw = reached(document, path)
        pod = viewed_pod(raw) if raw is not None else None
        if not isinstance(pod, Pod):
            return None
        return Judged(
            view=pod,
            raw=raw,
            path=".".join(path),
            metadata=head.metadata,
            namespace=namespace,
        )
    view_type = VIEWS.get(kind, ObjectHead)
    value = viewed(document, view_type)
    if isinstance(value, Finding):
        return None
    return Judged(view=value, raw=document, metadata=head.metadata, namespace=namespace)


def _judged_template(document: Mapping[str, Any], pod: Judged) -> Judged:
    """Return a template that a translation made, judged as who made the pod is."""
    value = viewed(document, VIEWS[TEMPLATE_KIND])
    if isinstance(value, Finding):
        raise TypeError(f"a translation made no {TEMPLATE_KIND[1]}: {value.message}")
    return Judged(view=value, raw=document, metadata=pod.metadata, namespace=pod.namespace)
