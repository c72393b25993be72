"""A workload, or an object of DRA, under review to an answer, told to who applies it; pure.

The pods that its template would make are put through the pipeline of pods. What that denies is
denied here, so that nobody has to look for it in the events of a ReplicaSet; with two differences,
since the pods come later and somebody else makes them:

* What may have passed by then only warns (`webhook.findings.MAY_PASS`).
* Only what a person or a tool applies is judged: no workload that a controller made of another one,
  and no update that leaves the pod template as it was.

Nothing is ever changed: the pods are translated when they are made.

Objects of DRA are judged by `webhook.rules`, where what stands in their spec is new.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from kube.api.core import Container, Pod, PodResourceClaim, ResourceRequirements
from kube.api.meta import ObjectMeta, view
from kube.api.resource import ResourceClaimTemplateSpec
from kube.product import REQUEST_ANNOTATION
from webhook.admission import UNTOUCHED, Answer, Decision, Translation, admit_created
from webhook.claims import Claim
from webhook.derivation import derive
from webhook.findings import MAY_PASS, Code, Finding, Severity, has_errors, warning
from webhook.guards import unseen
from webhook.intents import Vocabulary
from webhook.legacy import containers, device_keys
from webhook.profile import Profile
from webhook.request import RequestError, decode_request
from webhook.rules.asked import at
from webhook.rules.context import Context
from webhook.rules.judge import Judged, judge
from webhook.translation import translate
from webhook.workloads import Path
from webhook.world import Options, World, vocabularies


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """An object that makes pods.

    Attributes:
        path: The fields that lead to its pod template.
        template: The pod template as it was parsed.
        pod: The typed view of the same.
    """

    metadata: ObjectMeta
    path: Path
    template: Mapping[str, Any]
    pod: Pod

    @property
    def is_controlled(self) -> bool:
        """Whether a controller made it, and will make it again as its owner says."""
        return any(owner.controller for owner in self.metadata.owner_references or ())


def judge_workload(
    workload: Workload,
    old: Workload | None,
    *,
    namespace: str,
    world: World,
    options: Options,
    translation: Translation = translate,
) -> Answer:
    """Return the answer to a workload; its patch is empty, its paths lead from the workload.

    Args:
        old: What it was before; None when it is made.
        namespace: Where its pods go.
        translation: How to translate its pods.
    """
    if workload.is_controlled or (old is not None and old.template == workload.template):
        return UNTOUCHED
    answer = admit_created(
        workload.template,
        workload.pod,
        namespace=namespace,
        world=world,
        options=options,
        translation=translation,
    )
    prefix = ".".join(workload.path)
    findings = tuple(
        finding.below(prefix)
        for finding in (
            *map(of_later_pods, answer.findings),
            *_unseen(workload.pod, answer.claims, world, options),
        )
    )
    return Answer(decision=_decision(answer, findings), findings=findings, claims=answer.claims)


def is_settled(judged: Judged, old: Judged | None) -> bool:
    """Return whether nothing is to be judged.

    What a controller made was judged as its template, and nobody hears what it is told. What asks for
    nothing new is never refused, so whatever is there can be mended, finished and removed.

    Args:
        old: What it was before; None when it is made.
    """
    return judged.is_controlled or (old is not None and _asked(old) == _asked(judged))


_NOTHING: Final = (None, ResourceRequirements())


def _asked(judged: Judged) -> object:
    """Return what an object asks for: its spec, but of a pod's only what is about devices."""
    if not isinstance(judged.view, Pod):
        return judged.raw.get("spec")
    spec = judged.view.spec
    containers = (*(spec.init_containers or ()), *(spec.containers or ()))
    amounts = [each.resources for each in containers]
    return spec.resource_claims, [each for each in amounts if each not in _NOTHING]


def judge_object(judged: Judged, context: Context) -> Answer:
    """Return the answer to an object of DRA, or to what uses claims."""
    return _judged(judge(judged, context))


def derived(judged: Judged, profiles: Mapping[str, Profile]) -> tuple[Claim, ...]:
    """Return the claims that a translated pod got; their templates may not be there yet.

    Args:
        judged: Hostile: whoever wrote the annotation may be anybody.
        profiles: Driver name to the profile in force here.
    """
    if not isinstance(judged.view, Pod) or REQUEST_ANNOTATION not in judged.view.annotations:
        return ()
    recorded = judged.view.annotations[REQUEST_ANNOTATION]
    try:
        return derive(decode_request(recorded), profiles).claims
    except RequestError:
        return ()  # Whoever translates says so.


def knowing(context: Context, namespace: str, claims: Iterable[Claim]) -> Context:
    """Return a context in which the templates of claims are there already."""
    made = {
        (namespace, claim.template): view(claim.spec, ResourceClaimTemplateSpec).spec.devices
        for claim in claims
    }
    return msgspec.structs.replace(context, templates={**context.templates, **made})


def translated(workload: Workload, namespace: str, claims: Sequence[Claim]) -> Judged:
    """Return a workload as rules judge it, once its pods are translated; without claims they stay."""
    pod = workload.pod
    if claims:
        entries = tuple(
            PodResourceClaim(name=claim.label, resource_claim_template_name=claim.template)
            for claim in claims
        )
        # What the claims stand for is not asked for a second time.
        spec = msgspec.structs.replace(
            pod.spec,
            resource_claims=entries,
            containers=_without_resources(pod.spec.containers),
            init_containers=_without_resources(pod.spec.init_containers),
        )
        pod = msgspec.structs.replace(pod, spec=spec)
    return Judged(
        view=pod,
        path=".".join(workload.path),
        metadata=workload.metadata,
        namespace=namespace,
    )


def _without_resources(containers: Sequence[Container] | None) -> tuple[Container, ...]:
    return tuple(msgspec.structs.replace(each, resources=None) for each in containers or ())


def where_asked(answer: Answer, workload: Workload, claims: Sequence[Claim]) -> Answer:
    """Return the answer to a translated workload with paths into what its author wrote."""
    prefix = ".".join((*workload.path, "spec.resourceClaims"))
    places = {
        f"{prefix}[{index}].resourceClaimTemplateName": _container_path(workload, claim)
        for index, claim in enumerate(claims)
    }
    places[prefix] = ".".join((*workload.path, "spec.containers"))
    findings = tuple(
        msgspec.structs.replace(each, path=places.get(each.path, each.path))
        for each in answer.findings
    )
    return msgspec.structs.replace(answer, findings=findings)


def _container_path(workload: Workload, claim: Claim) -> str:
    """Return the resources of the first container that uses a claim."""
    user = claim.uses[0].container if claim.uses else ""
    for path, container in containers(workload.pod):
        if container.name == user:
            return ".".join((*workload.path, path, "resources"))
    return ".".join((*workload.path, "spec.containers"))


def both(one: Answer, other: Answer) -> Answer:
    """Return an answer that says what both say."""
    if not other.findings:
        return one
    findings = (*one.findings, *other.findings)
    decision = other.decision if one.decision is Decision.UNTOUCHED else one.decision
    return msgspec.structs.replace(
        one,
        findings=findings,
        decision=Decision.REFUSED if has_errors(findings) else decision,
        verdict=one.verdict if has_errors(one.findings) else other.verdict,
    )


def judge_late(judged: Judged, context: Context) -> Answer:
    """Return the answer to an object whose turn did not come in time.

    Args:
        context: In which nothing is known of the inventory.
    """
    late = warning(
        Code.NOT_JUDGED,
        at(judged.path, "spec"),
        "the webhook is busy, so whether the inventory can ever give this was not looked at",
    )
    return _judged((*judge(judged, context), late))


def _judged(findings: tuple[Finding, ...]) -> Answer:
    if has_errors(findings):
        return Answer(decision=Decision.REFUSED, findings=findings, verdict="is wrong")
    decision = Decision.JUDGED if findings else Decision.UNTOUCHED
    return Answer(decision=decision, findings=findings)


def _decision(answer: Answer, findings: tuple[Finding, ...]) -> Decision:
    if has_errors(findings):
        return Decision.REFUSED
    if answer.decision in {Decision.UNTOUCHED, Decision.UNTRANSLATED}:
        return Decision.UNTOUCHED
    return Decision.JUDGED


def of_later_pods(finding: Finding) -> Finding:
    """Return what a finding about a pod means for pods that come later."""
    if not finding.is_error or finding.code not in MAY_PASS:
        return finding
    advice = f"{finding.message}; {finding.fix}" if finding.fix else finding.message
    return msgspec.structs.replace(
        finding, severity=Severity.WARNING, message=f"pods would be refused now: {advice}"
    )


def _unseen(
    pod: Pod, claims: tuple[Claim, ...], world: World, options: Options
) -> Iterator[Finding]:
    if claims and world.onlookers:
        keys = _keys(pod, vocabularies(options, world.profiles))
        yield from unseen(claims, min(keys), world, options)


def _keys(pod: Pod, speaking: Mapping[str, Vocabulary]) -> frozenset[str]:
    """Return the device keys that a pod has, and those that it had before it was translated."""
    there = (device_keys(container, speaking) for _, container in containers(pod))
    recorded = pod.annotations.get(REQUEST_ANNOTATION)
    before = frozenset() if recorded is None else decode_request(recorded).keys()
    return before.union(*there)
