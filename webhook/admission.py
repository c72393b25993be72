"""A pod under review to an answer: the pipeline of the mutating webhook, pure.

* CREATE without our annotation: translated, left alone, or refused.
* CREATE with it: accepted as it is if its claims derive from it (another round of admission, or the
  output of `drawbridge translate`); keys that somebody added since are translated with the rest.
* UPDATE of a translated pod: the same keys are stripped again, so that a second `kubectl apply` of
  the legacy manifest changes nothing; the annotation cannot change.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, Protocol

import msgspec

from kube.api.core import Container, Pod
from kube.api.meta import view
from kube.product import REQUEST_ANNOTATION
from kube.quantity import Quantity
from webhook.claims import MAX_LABEL, Claim
from webhook.derivation import Derived, derive
from webhook.edits import stripping, translating, untranslating
from webhook.findings import Code, Finding, amount_path, error, has_errors, printable
from webhook.guards import claimed_twice, taken
from webhook.intents import LegacyPod, Vocabulary
from webhook.jsonpatch import Operation, add, apply, pointer
from webhook.legacy import containers, device_keys, has_device_keys, legacy_pod
from webhook.request import MAX_CONTAINERS, Request, RequestError, decode_request
from webhook.translation import Outcome, Refused, Translated, Untouched, translate
from webhook.vocabularies.arbiter import VOCABULARIES
from webhook.world import Options, World, vocabularies

MAX_AMOUNTS: Final = 4096
MAX_CLAIMS: Final = 1024
"""In one pod, which no node could run. What a body holds beyond takes seconds, not milliseconds."""
MAX_ANNOTATIONS: Final = 256 * 1024
"""As the API server, which counts bytes and after us: TotalAnnotationSizeLimitB."""
MAX_USERS: Final = 5
"""Containers that a message names."""

ANNOTATION_PATH: Final = f"metadata.annotations[{REQUEST_ANNOTATION}]"


class Decision(StrEnum):
    """What was decided, for logs, metrics and the audit annotation."""

    UNTOUCHED = "untouched"
    TRANSLATED = "translated"
    ACCEPTED = "accepted"
    """It was translated before."""
    UNTRANSLATED = "untranslated"
    """It was translated before, and with the keys that came since it is to be left alone."""
    STRIPPED = "stripped"
    JUDGED = "judged"
    """A workload whose pods will be translated, or were before."""
    REFUSED = "refused"


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What to say about one pod.

    Attributes:
        operations: The patch; empty when nothing changes.
        claims: That the pod needs, translated now or before.
        verdict: What a refusal says of the object, before it says why.
    """

    decision: Decision
    operations: tuple[Operation, ...] = ()
    findings: tuple[Finding, ...] = ()
    claims: tuple[Claim, ...] = ()
    verdict: str = "cannot be translated"

    @property
    def allowed(self) -> bool:
        """Whether the pod may pass."""
        return self.decision is not Decision.REFUSED


UNTOUCHED: Final = Answer(decision=Decision.UNTOUCHED)


class Translation(Protocol):
    """`translate`, or what remembers its results."""

    def __call__(
        self, legacy: LegacyPod, /, *, namespace: str, world: World, options: Options
    ) -> Outcome:
        """Return what becomes of a pod."""


def admit_created(
    document: Mapping[str, Any],
    pod: Pod,
    *,
    namespace: str,
    world: World,
    options: Options,
    translation: Translation = translate,
) -> Answer:
    """Return the answer to the creation of a pod.

    Args:
        document: The pod as it was parsed; not changed.
        pod: The typed view of the same document.
        namespace: Where the pod goes.
        translation: How to translate a pod that was not translated before.
    """
    speaking = vocabularies(options, world.profiles)
    faults = tuple(_excess(pod, speaking))
    if faults:
        return Answer(decision=Decision.REFUSED, findings=faults)

    def translated(legacy: Pod) -> Outcome:
        read = legacy_pod(legacy, speaking)
        return translation(read, namespace=namespace, world=world, options=options)

    if REQUEST_ANNOTATION not in pod.annotations:
        return _translated(document, pod, namespace, world, translated)
    request, derived = _recorded(pod, world)
    if request is None:
        return Answer(decision=Decision.REFUSED, findings=derived.findings)
    faults = (*_underived(pod, derived.claims), *taken(derived.claims, namespace, world))
    if faults:
        return Answer(decision=Decision.REFUSED, findings=faults)
    if not has_device_keys(pod, speaking):
        return Answer(decision=Decision.ACCEPTED, claims=derived.claims)
    faults = tuple(_changed(pod, request, speaking, only_recorded=True))
    if faults:
        return Answer(decision=Decision.REFUSED, findings=faults)
    # Somebody added keys since: what was translated is undone, and translated with the rest.
    undone = tuple(untranslating(document, derived.claims, _recorded_limits(request)))
    legacy = apply(copy.deepcopy(document), undone)
    answer = _translated(legacy, view(legacy, Pod), namespace, world, translated)
    if not answer.allowed:
        return answer
    untouched = answer.decision is Decision.UNTOUCHED
    return msgspec.structs.replace(
        answer,
        decision=Decision.UNTRANSLATED if untouched else answer.decision,
        operations=(*undone, *answer.operations),
    )


def admit_updated(
    document: Mapping[str, Any],
    pod: Pod,
    old: Pod,
    *,
    options: Options,
    speaking: Mapping[str, Vocabulary] = VOCABULARIES,
) -> Answer:
    """Return the answer to the update of a pod, or of its status.

    Args:
        speaking: The vocabularies, with the resource names that profiles give them.
    """
    recorded = old.annotations.get(REQUEST_ANNOTATION)
    if pod.annotations.get(REQUEST_ANNOTATION) != recorded:
        return Answer(decision=Decision.REFUSED, findings=(_annotation_changed(recorded),))
    if recorded is None or not has_device_keys(pod, speaking):
        return Answer(decision=Decision.UNTOUCHED)
    faults = tuple(_excess(pod, speaking))
    if faults:
        return Answer(decision=Decision.REFUSED, findings=faults)
    try:
        request = decode_request(recorded)
    except RequestError as fault:
        return Answer(decision=Decision.REFUSED, findings=(_malformed(fault),))
    faults = tuple(_changed(pod, request, speaking))
    if faults:
        return Answer(decision=Decision.REFUSED, findings=faults)
    keys = {container.name: device_keys(container, speaking) for _, container in containers(pod)}
    operations = (*stripping(document, keys), *_kept_adopted(pod, old, options))
    return Answer(decision=Decision.STRIPPED, operations=operations)


def _translated(
    document: Mapping[str, Any],
    pod: Pod,
    namespace: str,
    world: World,
    translated: Callable[[Pod], Outcome],
) -> Answer:
    outcome = translated(pod)
    match outcome:
        case Untouched():
            return Answer(decision=Decision.UNTOUCHED, findings=outcome.findings)
        case Refused():
            return Answer(decision=Decision.REFUSED, findings=outcome.findings)
        case Translated():
            drivers = [used.name for used in outcome.request.profiles]
            doubts = claimed_twice(pod, drivers, namespace, world)
            return _translated_there(document, outcome, tuple(doubts), namespace, world)


def _translated_there(
    document: Mapping[str, Any],
    outcome: Translated,
    doubts: tuple[Finding, ...],
    namespace: str,
    world: World,
) -> Answer:
    faults = tuple(taken(outcome.claims, namespace, world))
    if faults:
        return Answer(decision=Decision.REFUSED, findings=(*outcome.findings, *faults))
    return Answer(
        decision=Decision.TRANSLATED,
        operations=tuple(translating(document, outcome)),
        findings=(*outcome.findings, *doubts),
        claims=outcome.claims,
    )


def _excess(pod: Pod, speaking: Mapping[str, Vocabulary]) -> Iterator[Finding]:
    """Yield a fault for what would take so long that other reviews wait for it.

    Nothing of this is checked yet when a mutating webhook is asked: a body of 3 MiB has room for
    tens of thousands of containers.
    """
    # A few lengths settle it nearly always, and every review pays for them.
    every = (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))
    most_claims = max(len(pod.spec.resource_claims or ()), sum(len(each.claims) for each in every))
    if (
        len(every) <= MAX_CONTAINERS
        and most_claims <= MAX_CLAIMS
        and sum(map(_amounts_in, every)) <= MAX_AMOUNTS
        and sum(map(len, pod.annotations.values())) <= MAX_ANNOTATIONS
    ):
        return
    asking = [each for each in every if device_keys(each, speaking)]
    for what, found, most in _sizes(pod, asking) if asking else ():
        if found > most:
            yield error(
                Code.TOO_LARGE,
                "metadata.annotations" if "annotations" in what else "spec",
                f"{found} {what} in a pod that asks for devices, at most {most} are read",
            )


def _sizes(pod: Pod, asking: Sequence[Container]) -> Iterator[tuple[str, int, int]]:
    """Yield what is counted, how much of it there is, and the most that is read."""
    uses = sum(len(each.claims) for _, each in containers(pod))
    yield "containers with devices", len(asking), MAX_CONTAINERS
    yield "amounts of resources", sum(map(_amounts_in, asking)), MAX_AMOUNTS
    yield "claims", len(pod.spec.resource_claims or ()), MAX_CLAIMS
    yield "uses of claims", uses, MAX_CLAIMS
    yield "characters in annotations", sum(map(len, pod.annotations.values())), MAX_ANNOTATIONS


def _amounts_in(container: Container) -> int:
    return len(container.limits) + len(container.requests)


# --- pods that were translated before -------------------------------------------------------------


def _recorded(pod: Pod, world: World) -> tuple[Request | None, Derived]:
    """Return the request that the pod carries and what derives from it; None and why not."""
    try:
        request = decode_request(pod.annotations[REQUEST_ANNOTATION])
    except RequestError as fault:
        return None, Derived(findings=(_malformed(fault),))
    derived = derive(request, world.profiles)
    if has_errors(derived.findings):
        at_annotation = tuple(
            msgspec.structs.replace(finding, path=ANNOTATION_PATH)
            for finding in derived.findings
            if finding.is_error
        )
        return None, Derived(findings=at_annotation)
    return request, derived


def _underived(pod: Pod, claims: Sequence[Claim]) -> Iterator[Finding]:
    """Yield a fault for each claim that the annotation derives and the pod does not use."""
    templates = {
        entry.name: entry.resource_claim_template_name for entry in pod.spec.resource_claims or ()
    }
    used = {
        container.name: {(use.name, use.request) for use in container.claims}
        for _, container in containers(pod)
    }
    free = {label for label, template in templates.items() if template is not None}
    for claim in claims:
        label = next(
            (
                label
                for label in sorted(free)
                if templates[label] == claim.template
                and all((label, use.request) in used.get(use.container, ()) for use in claim.uses)
            ),
            None,
        )
        if label is None:
            yield error(
                Code.REQUEST_FORGED,
                ANNOTATION_PATH,
                f"derives ResourceClaimTemplate {claim.template} for {_users(claim)}, "
                "which the pod does not use so",
                "remove the annotation; the webhook writes it",
            )
        else:
            free.remove(label)


def _users(claim: Claim) -> str:
    """Return the containers of a claim, which anybody may have named, in words."""
    names = sorted({use.container for use in claim.uses})
    told = [printable(name[:MAX_LABEL]) or '""' for name in names[:MAX_USERS]]
    return ", ".join(told + ["others"] * (len(names) > MAX_USERS))


def _kept_adopted(pod: Pod, old: Pod, options: Options) -> Iterator[Operation]:
    """Yield what keeps an adopted pod where it is: its manifest names the scheduler it came from."""
    named, keeps = pod.spec.scheduler_name, old.spec.scheduler_name
    if named != keeps and options.scheduler_for(named) == keeps:
        yield add(pointer("spec", "schedulerName"), keeps)


def _recorded_limits(request: Request) -> Mapping[str, Mapping[str, str]]:
    return {
        container.name: {key: str(amount) for key, amount in container.limits.items()}
        for container in request.containers
    }


def _changed(
    pod: Pod,
    request: Request,
    speaking: Mapping[str, Vocabulary],
    *,
    only_recorded: bool = False,
) -> Iterator[Finding]:
    """Yield a fault for each device key whose amount is not the recorded one."""
    recorded = {container.name: container.limits for container in request.containers}
    for path, container in containers(pod):
        was = recorded.get(container.name, {})
        for key in sorted(device_keys(container, speaking)):
            if key not in was and only_recorded:
                continue
            found = _amounts(container, key)
            if any(amount != was.get(key) for amount in found):
                yield error(
                    Code.REQUEST_CHANGED,
                    amount_path(path, "limits", key),
                    f"a pod's devices are fixed when it is made: recorded {was.get(key, 'nothing')}"
                    f", found {found[0]}",
                    "delete the pod and make it again",
                )


def _amounts(container: Container, key: str) -> list[Quantity]:
    return [amounts[key] for amounts in (container.limits, container.requests) if key in amounts]


def _malformed(fault: RequestError) -> Finding:
    return error(
        Code.REQUEST_MALFORMED,
        ANNOTATION_PATH,
        printable(str(fault)[:200]),
        "remove the annotation; the webhook writes it",
    )


def _annotation_changed(recorded: str | None) -> Finding:
    if recorded is None:
        return error(
            Code.REQUEST_FORGED,
            ANNOTATION_PATH,
            "is written when a pod is made, and this pod was made without it",
            "remove it",
        )
    return error(
        Code.REQUEST_CHANGED,
        ANNOTATION_PATH,
        "the pod's claims derive from it, so it cannot change",
        "leave it as it is; to change the devices, make the pod again",
    )
