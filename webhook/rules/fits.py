"""What can never fit the inventory, and what does not fit now: the allocator's own verdicts.

Where the inventory is no proof, `webhook.rules.proof` makes a warning of it.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from allocator.cluster import Cluster
from allocator.core.outcome import AttemptFailed
from allocator.extended_resource_claim import (
    SUFFIX,
    extended_resource_claim,
    mapped_resources,
)
from allocator.near import nearest_now
from kube.api.core import Pod
from kube.api.meta import ObjectMeta
from kube.api.resource import MAX_REQUESTS, DeviceClaim, ResourceClaim, ResourceClaimSpec
from kube.product import DEFAULT_SCHEDULER_NAME
from webhook.findings import Code, Finding, warning
from webhook.rules.asked import MAX_CHARACTERS, at, characters
from webhook.rules.context import Context
from webhook.rules.emptied import SEARCHES
from webhook.rules.misfit import Misfit, is_rewordable, misfits
from webhook.rules.proof import standing, told
from webhook.rules.room import Fit, examples, fit, reasons
from webhook.rules.rule import OTHER_OBJECTS, Class, Part, Rule, Subject

MAX_CLAIMS: Final = 16
"""Claims of a pod that are asked about together."""
_SCHEDULERS: Final = frozenset({"", DEFAULT_SCHEDULER_NAME})
"""Others may make something else of extended resources."""
_FINISHED: Final = frozenset({"Succeeded", "Failed"})


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A claim of a pod, or the one that is judged.

    Attributes:
        path: From the object to its devices, or to what it is made of.
        is_written_out: The path leads to its devices, and goes on in them.
        is_named: The path leads to its name, so messages say where in the claim it is.
    """

    claim: ResourceClaim
    path: str
    is_written_out: bool = False
    is_named: bool = False


# --- what is asked together -----------------------------------------------------------------------


def _of_claim(claim: Subject[DeviceClaim], path: str) -> tuple[_Entry, ...]:
    """Return a claim; nothing where it has its devices."""
    status = claim.raw.get("status")
    if isinstance(status, dict) and status.get("allocation"):
        return ()
    if len(claim.view.requests or ()) > MAX_REQUESTS:
        return ()
    metadata = ObjectMeta(name="claim", namespace=claim.namespace)
    return (_Entry(claim=_claim(claim.view, metadata), path=path, is_written_out=True),)


def _of_pod(pod: Subject[Pod], path: str, context: Context) -> tuple[_Entry, ...]:
    """Return the claims of a pod that have no devices yet, as far as they are known."""
    status = pod.view.status
    if pod.view.spec.node_name or (status is not None and status.phase in _FINISHED):
        return ()
    entries: dict[tuple[str, str], _Entry] = {}
    # What a part of the claims cannot get, all of them cannot.
    for index, one in enumerate((pod.view.spec.resource_claims or ())[:MAX_CLAIMS]):
        place = at(path, f"spec.resourceClaims[{index}]")
        if one.resource_claim_template_name:
            name, field = one.resource_claim_template_name, "resourceClaimTemplateName"
            devices = context.templates.get((pod.namespace, name))
            key, called = ("template", str(index)), one.name
        else:
            name, field = one.resource_claim_name or "", "resourceClaimName"
            devices = context.claims.get((pod.namespace, name))
            key, called = ("claim", name), name
        # What is allocated has its devices, and two entries may name one claim.
        if devices is None or len(devices.requests or ()) > MAX_REQUESTS:
            continue
        if key[0] == "claim" and (pod.namespace, name) in context.allocated:
            continue
        # A claim yet to be made of a template is known by the pod's name for it.
        metadata = ObjectMeta(name=called, namespace=pod.namespace)
        claim = _claim(devices, metadata)
        entries.setdefault(key, _Entry(claim=claim, path=f"{place}.{field}", is_named=True))
    return (*entries.values(), *_of_extended(pod, path, context))


def _of_extended(pod: Subject[Pod], path: str, context: Context) -> Iterator[_Entry]:
    """Yield the claim that the scheduler makes for resources that classes map.

    Not for those that some node may offer without DRA.
    """
    emptied, classes = context.emptied, context.extended_resources
    if emptied is None or not classes or pod.view.spec.scheduler_name not in _SCHEDULERS:
        return
    wanted = emptied.only_claimed(mapped_resources(pod.view, classes))
    if not wanted:
        return
    claim = extended_resource_claim(pod.view, wanted, classes)
    if len(claim.spec.devices.requests or ()) <= MAX_REQUESTS:
        made = _claim(claim.spec.devices, ObjectMeta(name=SUFFIX, namespace=pod.namespace))
        yield _Entry(claim=made, path=at(path, "spec.containers"))


def _claim(devices: DeviceClaim, metadata: ObjectMeta) -> ResourceClaim:
    # What drivers are told decides nothing here.
    asking = replace(devices, config=None)
    return ResourceClaim(metadata=metadata, spec=ResourceClaimSpec(devices=asking))


# --- what is said ---------------------------------------------------------------------------------


def _claim_fits(
    code: Code, claim: Subject[DeviceClaim], path: str, context: Context
) -> Iterator[Finding]:
    return _findings(code, _of_claim(claim, path), path, claim.namespace, context)


def _pod_fits(code: Code, pod: Subject[Pod], path: str, context: Context) -> Iterator[Finding]:
    entries = _of_pod(pod, path, context)
    whole = at(path, "spec.resourceClaims")
    return _findings(code, entries, whole, pod.namespace, context)


def _findings(
    code: Code, entries: Sequence[_Entry], whole: str, namespace: str, context: Context
) -> Iterator[Finding]:
    """Yield what there is to say of claims under one code.

    Args:
        whole: The path of what is about all claims together.
    """
    emptied = context.emptied
    if emptied is None or not entries:
        return
    claims = tuple(each.claim for each in entries)
    if sum(characters(each.spec.devices) for each in claims) > MAX_CHARACTERS:
        if code is Code.NOT_JUDGED:
            message = "whether it can ever fit was not looked at, since its selectors are so long"
            yield warning(code, _place(entries, whole), message)
        return
    if code is Code.DOES_NOT_FIT_NOW:
        if context.present is not None and emptied.fits(claims) is Fit.FITS:
            yield from _now(context.present, claims, _place(entries, whole))
        return
    for misfit in misfits(emptied, claims):
        if misfit.code is code:
            yield from _finding(misfit, entries, whole, namespace, context)


def _finding(
    misfit: Misfit, entries: Sequence[_Entry], whole: str, namespace: str, context: Context
) -> Iterable[Finding]:
    message = misfit.message
    if misfit.claim is None:
        path = _place(entries, whole)
    else:
        entry = entries[misfit.claim]
        path = at(entry.path, misfit.path) if entry.is_written_out else entry.path
        message = f"{misfit.path}: {message}" if entry.is_named else message
    if misfit.code is Code.NOT_JUDGED:
        return (warning(misfit.code, path, message),)
    by = standing(
        context,
        namespace,
        drivers=misfit.drivers,
        classes=misfit.classes,
        doubt=misfit.doubt,
    )
    fix = misfit.nearest.detail if misfit.nearest is not None else ""
    return told(misfit.code, path, message, by=by, details=misfit.details, fix=fix)


def _place(entries: Sequence[_Entry], whole: str) -> str:
    return entries[0].path if len(entries) == 1 else whole


def _now(present: Cluster, claims: Sequence[ResourceClaim], path: str) -> Iterator[Finding]:
    """Yield a warning where no node fits claims as it is used now."""
    try:
        asked = present.ask(claims)
        if fit(present, asked) is not Fit.NOWHERE:
            return
        why = reasons(present, asked)
        names = [one.node.node for one in examples(present, asked)]
    except AttemptFailed:
        return
    nearest = None
    if is_rewordable(claims):
        nearest = nearest_now(present, claims, nodes=names, searches=SEARCHES)
    yield warning(
        Code.DOES_NOT_FIT_NOW,
        path,
        f"no node can give this as things are now ({why})",
        nearest.detail if nearest is not None else "",
    )


# --- the table ------------------------------------------------------------------------------------

_CURES: Final = (
    (Code.MORE_THAN_ANY_DEVICE, Class.NEVER, "Ask for no more than the largest device has."),
    (
        Code.OUTSIDE_REQUEST_POLICY,
        Class.NEVER,
        "Ask for an amount that is within the policy once it is rounded up.",
    ),
    (
        Code.MORE_THAN_ANY_NODE,
        Class.NEVER,
        "Ask for no more devices than one node has; for more, start several pods.",
    ),
    (
        Code.CONSTRAINT_NEVER_MET,
        Class.NEVER,
        "Ask for fewer devices, or align them by something that more of them have in common.",
    ),
    (
        Code.MODES_EXCLUDE,
        Class.NEVER,
        "Ask for devices of one mode, or in pods of their own (`drawbridge matrix`).",
    ),
    (Code.NEVER_TOGETHER, Class.NEVER, "Ask for less in one pod."),
    (
        Code.NEVER_USABLE,
        Class.NEVER,
        "Select other devices; the message says what keeps these from use.",
    ),
    (Code.NOT_JUDGED, Class.ADVICE, "`drawbridge simulate` takes the time that it needs."),
    (Code.DOES_NOT_FIT_NOW, Class.NOW, "Wait, free devices, or ask for what the fix says."),
)


def _rules() -> Iterator[Rule[Any]]:
    for code, rank, cure in _CURES:
        for part, judge in ((Part.CLAIM, _claim_fits), (Part.POD, _pod_fits)):
            yield Rule(
                code=code,
                part=part,
                rank=rank,
                judge=partial(judge, code),
                cure=cure,
                why_not_cel=OTHER_OBJECTS,
            )


RULES: Final[tuple[Rule[Any], ...]] = tuple(_rules())
