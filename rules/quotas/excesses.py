"""Claims that exceed a DeviceQuota: never within it, or not now.

The least that claims can be charged with decides, whatever devices they get: what exceeds a limit even so
is rejected for good. What only the present use excludes waits, unless the quota denies such pods.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from allocator.pods.extended_resource_claim import mapped_resources
from findings.field_path import FieldPath
from findings.finding import Code, Finding, Severity, error, warning
from findings.fitting import FittingAmounts
from kube.api.core import Pod
from kube.api.resource import (
    DeviceClaim,
    DeviceRequest,
)
from kube.quantity import ZERO, Format, Quantity
from quotas.device_quotas.book import QuotaBook
from quotas.device_quotas.caps import CapBreach
from quotas.device_quotas.ledger import Excess
from quotas.device_quotas.limits import ONE, Limit, Measure
from rules.context.claim_entries import (
    ClaimEntry,
    are_selectors_short,
    entries_of_claim,
    entries_of_pod,
    joint_path,
)
from rules.context.context import Context
from rules.context.evidence import decide_enforcement
from rules.context.rule import (
    OTHER_OBJECTS,
    Category,
    Rule,
    Scope,
    Subject,
    rules_of_claims_and_pods,
)
from rules.feasibility.enforcement import Enforcement
from rules.quotas.amount_places import (
    AmountPlace,
    amount_place,
    fitting_amount,
    only_form,
    request_with,
)

UNTIL_ROOM: Final = (
    "wait until other pods of the tenant end, request less, or raise the DeviceQuota"
)
"""The way out for a pod that waits for a DeviceQuota if no smaller amount is known to fit."""

_MEBIBYTE: Final = Quantity("1Mi")
_COUNTED: Final = frozenset({Measure.DEVICES, Measure.CLAIMS})
"""Measures in which a device that is published later is charged the same."""


class _Claims(NamedTuple):
    """The claims that are validated together.

    Attributes:
        whole: The path for findings about all of them together.
    """

    entries: Sequence[ClaimEntry]
    whole: FieldPath
    namespace: str
    book: QuotaBook
    context: Context

    def exceed(self, request: DeviceRequest, limit: Limit) -> bool:
        """Return True if a request exceeds a limit or its caps by itself."""
        return any(
            (breach.limit if isinstance(breach, CapBreach) else breach.account.limit) is limit
            for breach in self.book.impossible(self.namespace, DeviceClaim(requests=(request,)))
        )


# --- what is never within a limit -----------------------------------------------------------------


def _find_breaches(claims: _Claims) -> Iterator[Finding]:
    """Yield requests that are larger than a quota allows for one."""
    for entry in claims.entries:
        for index, request in enumerate(entry.claim.spec.devices.requests or ()):
            alone = DeviceClaim(requests=(request,))
            for breach in claims.book.impossible(claims.namespace, alone):
                if isinstance(breach, CapBreach):
                    limit, is_per_device = breach.limit, breach.per == "device"
                    place = amount_place(entry, index, request, limit, is_per_device=is_per_device)
                    most = _most_for_field(place, limit, breach.cap, is_per_device=is_per_device)
                    finding = _located(
                        Code.EXCEEDS_PER_REQUEST_QUOTA,
                        place,
                        breach.message,
                        _fix(limit, breach.cap),
                    )
                    yield _with_amount(finding, place, most, limit, claims)


def _find_excesses(claims: _Claims, excesses: Sequence[Excess]) -> Iterator[Finding]:
    """Yield limits that are smaller than the total of some claims.

    Args:
        excesses: The limits that the claims exceed at least.
    """
    for excess in excesses:
        if not excess.is_final:
            continue
        limit = excess.account.limit
        message, fix = _describe(excess)
        place = _request_above(claims, limit)
        if place is None:
            path = joint_path(claims.entries, claims.whole)
            finding = error(Code.EXCEEDS_DEVICE_QUOTA, path, message, fix)
            yield _with_doubt(finding, limit, claims)
        else:
            finding = _located(Code.EXCEEDS_DEVICE_QUOTA, place, message, fix)
            most = _most_for_field(place, limit, limit.max, is_per_device=False)
            yield _with_amount(finding, place, most, limit, claims)


def _describe(excess: Excess) -> tuple[str, str]:
    """Describe an amount above the whole limit, and the right value."""
    limit = excess.account.limit
    if limit.is_closed:
        return excess.message, "correct the selector of the limit"
    needed, most = limit.in_words(excess.amount), limit.in_words(limit.max.nanos)
    message = (
        f"DeviceQuota {limit.quota}, limit {limit.name}: {needed} needed, at most {most} allowed"
    )
    return message, _fix(limit, limit.max)


def _request_above(claims: _Claims, limit: Limit) -> AmountPlace | None:
    """Return the first request that exceeds a limit by itself."""
    for entry in claims.entries:
        for index, request in enumerate(entry.claim.spec.devices.requests or ()):
            alone = DeviceClaim(requests=(request,))
            for excess in claims.book.impossible(claims.namespace, alone):
                if isinstance(excess, Excess) and excess.account.limit is limit:
                    return amount_place(entry, index, request, limit, is_per_device=False)
    return None


def _most_for_field(
    place: AmountPlace, limit: Limit, most: Quantity, *, is_per_device: bool
) -> Quantity | None:
    """Return the most that a request may have in its field, or added to it; None if it names no amount above it.

    Args:
        most: The most that it may be charged with, for a device or for all of its devices.
    """
    if place.amount is None and place.added_field.is_root:
        return None
    if limit.measure is Measure.CAPACITY and not is_per_device:
        form = only_form(place.request)
        number = 1 if form is None or form.count is None else form.count
        nanos = most.nanos // max(number, 1)
        if most.format is Format.BINARY and nanos > _MEBIBYTE.nanos:
            # An uneven part of it would be rounded up, and exceed the limit.
            nanos -= nanos % _MEBIBYTE.nanos
        most = Quantity.from_nanos(nanos, most.format)
    if limit.measure is Measure.DEVICES:
        most = Quantity(most.nanos // ONE)
    return most if place.amount is None or place.amount > most else None


def _located(code: Code, place: AmountPlace, message: str, fix: str) -> Finding:
    """Return an error at a request, or at the reference to its claim."""
    entry = place.entry
    path = entry.path.join(place.field) if entry.holds_devices else entry.path
    finding = error(code, path, message, fix)
    return replace(finding, cause=place.field) if entry.is_reference else finding


def _with_amount(
    finding: Finding, place: AmountPlace, most: Quantity | None, limit: Limit, claims: _Claims
) -> Finding:
    """Return a finding with its fix as a number for the field of a request, if one is right.

    Args:
        most: The largest number for the field; None where it has none above it.
    """
    if most is not None and most > ZERO and not claims.exceed(request_with(place, most), limit):
        finding = replace(finding, fitting=FittingAmounts(amounts=(fitting_amount(place, most),)))
    # The claim itself names more than the limit allows, whatever devices are published.
    is_named = most is not None and place.amount is not None
    return finding if is_named else _with_doubt(finding, limit, claims)


def _with_doubt(finding: Finding, limit: Limit, claims: _Claims) -> Finding:
    """Return an error as a warning if a device that is published later may be charged with less."""
    if limit.is_closed or limit.measure in _COUNTED:
        return finding
    enforcement, reason = decide_enforcement(
        claims.context, claims.namespace, drivers=(limit.driver,), classes=sorted(limit.classes)
    )
    if enforcement is Enforcement.DENY:
        return finding
    doubt = f"; only a warning, since {reason}" if reason else ""
    return replace(finding, severity=Severity.WARNING, detail=finding.detail + doubt)


def _fix(limit: Limit, most: Quantity) -> str:
    return f"request at most {limit.in_words(most.nanos)}, or raise the DeviceQuota"


# --- what is not within a limit now ---------------------------------------------------------------


def _find_full(claims: _Claims, excesses: Sequence[Excess], *, is_pod: bool) -> Iterator[Finding]:
    """Yield limits with less left than the claims of a pod need.

    Args:
        is_pod: The pod itself is validated, and not its workload.
    """
    for excess in excesses:
        if excess.is_final or any(_find_breaches(claims)):
            continue
        path = joint_path(claims.entries, claims.whole)
        finding = _full(excess, path, claims.book, is_pod=is_pod)
        yield _within_what_is_left(finding, excess, claims)


def _within_what_is_left(finding: Finding, excess: Excess, claims: _Claims) -> Finding:
    """Return a finding with the number left for the only request of the limit."""
    limit = excess.account.limit
    charged = [
        (entry, index, request)
        for entry in claims.entries
        for index, request in enumerate(entry.claim.spec.devices.requests or ())
        if _least_charge(request, excess, claims)
    ]
    if len(charged) != 1:
        return finding
    place = amount_place(*charged[0], limit, is_per_device=False)
    left = Quantity.from_nanos(excess.left, limit.max.format)
    most = _most_for_field(place, limit, left, is_per_device=False)
    if most is None or most <= ZERO:
        return finding
    if _least_charge(request_with(place, most), excess, claims) > excess.left:
        return finding
    amount = fitting_amount(place, most)
    located = _located(finding.code, place, finding.detail, finding.fix)
    return replace(
        finding,
        path=located.path,
        cause=located.cause,
        fix=f"request at most {limit.in_words(excess.left)}, wait, or raise the DeviceQuota",
        fitting=FittingAmounts(amounts=(amount,), quota=f"DeviceQuota {limit.quota}"),
    )


def _find_full_for_all(claims: _Claims, pods: int) -> Iterator[Finding]:
    """Yield limits that have enough left for one pod of a workload, and too little for all of them.

    A claim that the pods share is charged once.
    """
    if not claims.entries or not are_selectors_short([entry.claim for entry in claims.entries]):
        return
    book, namespace = claims.book, claims.namespace
    devices = [entry.claim.spec.devices for entry in claims.entries]
    own = [entry.claim.spec.devices for entry in claims.entries if entry.existing is None]
    of_one = book.least_charges(namespace, devices)
    of_next = book.least_charges(namespace, own)
    of_all = {account: of_one[account] + of_next[account] * (pods - 1) for account in of_one}
    exceeded_by_one = {excess.account for excess in book.ledger.excesses(of_one)}
    for excess in book.ledger.excesses(of_all):
        if excess.account not in exceeded_by_one:
            yield warning(
                Code.DEVICE_QUOTA_FULL,
                joint_path(claims.entries, claims.whole),
                f"{excess.message} for {pods} pods; where the quota is enforced, some of them wait",
                UNTIL_ROOM,
            )


def _least_charge(request: DeviceRequest, excess: Excess, claims: _Claims) -> int:
    devices = DeviceClaim(requests=(request,))
    return claims.book.estimates(devices, (excess.account,))[excess.account].total.least


def _full(excess: Excess, place: FieldPath, book: QuotaBook, *, is_pod: bool) -> Finding:
    """Return that less is left of a limit than is needed."""
    limit = excess.account.limit
    # The webhook knows of what is used only: where that leaves enough, the pod is created, and waits.
    used = book.ledger.totals(excess.account).used
    if is_pod and not limit.waits and used + excess.amount > limit.available_max:
        outcome, finding = "; the quota denies such pods", error
    else:
        outcome, finding = "; where the quota is enforced, the pod waits", warning
    return finding(
        Code.DEVICE_QUOTA_FULL,
        place,
        f"{excess.message}{outcome}",
        UNTIL_ROOM,
    )


# --- the table ------------------------------------------------------------------------------------


def _validate_claim(
    code: Code, claim: Subject[DeviceClaim], path: FieldPath, context: Context
) -> Iterator[Finding]:
    book = _book_of(claim.namespace, context)
    if book is not None:
        entries = entries_of_claim(claim, path)
        yield from _findings(code, _Claims(entries, path, claim.namespace, book, context))


def _validate_pod(
    code: Code, pod: Subject[Pod], path: FieldPath, context: Context
) -> Iterator[Finding]:
    yield from _validate_claims_of_pod(code, pod, path, context)
    book = _book_of(pod.namespace, context)
    if book is not None:
        yield from _find_by_keys(code, pod, path, context, book)


def _validate_claims_of_pod(
    code: Code, pod: Subject[Pod], path: FieldPath, context: Context
) -> Iterator[Finding]:
    book = _book_of(pod.namespace, context)
    if book is None:
        return
    entries = uncharged_entries(pod, path, context, book)
    whole = path.child("spec", "resourceClaims")
    claims = _Claims(entries, whole, pod.namespace, book, context)
    yield from _findings(code, claims, is_pod=path.is_root)
    if code is Code.DEVICE_QUOTA_FULL and pod.pods > 1:
        yield from _find_full_for_all(claims, pod.pods)


def uncharged_entries(
    pod: Subject[Pod], path: FieldPath, context: Context, book: QuotaBook
) -> tuple[ClaimEntry, ...]:
    """Return the claims of a pod without a charge: each is charged once, however many pods share it."""
    return tuple(
        entry
        for entry in entries_of_pod(pod, path, context)
        if entry.existing is None or not book.ledger.is_committed(entry.existing)
    )


def _find_by_keys(
    code: Code, pod: Subject[Pod], path: FieldPath, context: Context, book: QuotaBook
) -> Iterator[Finding]:
    """Yield limits that a pod exceeds with keys that it has instead of claims."""
    if pod.view.spec.node_name:
        return
    mapped = mapped_resources(pod.view, context.extended_resources)
    charges = book.legacy_charges(pod.namespace, pod.view.spec, mapped)
    place = path.child("spec", "containers")
    if code is Code.EXCEEDS_PER_REQUEST_QUOTA:
        for breach in book.legacy_breaches(pod.namespace, pod.view.spec, mapped):
            yield error(code, place, breach.message, _fix(breach.limit, breach.cap))
        return
    for excess in book.ledger.excesses(charges):
        if excess.is_final and code is Code.EXCEEDS_DEVICE_QUOTA:
            yield error(code, place, *_describe(excess))
        elif not excess.is_final and code is Code.DEVICE_QUOTA_FULL:
            yield _full(excess, place, book, is_pod=path.is_root)


def find_pod_excesses(pod: Subject[Pod], path: FieldPath, context: Context) -> Iterator[Finding]:
    """Yield the reasons that the quotas of its namespace do not let a pod through: for good, or now."""
    for code in _CODES:
        yield from _validate_pod(code, pod, path, context)


def find_claim_excesses(pod: Subject[Pod], path: FieldPath, context: Context) -> Iterator[Finding]:
    """Yield the same reasons for a pod that has got through for its keys, and waits for its claims."""
    for code in _CODES:
        yield from _validate_claims_of_pod(code, pod, path, context)


def _book_of(namespace: str, context: Context) -> QuotaBook | None:
    """Return the book if a quota selects a namespace, so that nothing is evaluated without one."""
    book = context.quota_book
    return book if book is not None and book.accounts(namespace) else None


def _findings(code: Code, claims: _Claims, *, is_pod: bool = False) -> Iterator[Finding]:
    devices = [entry.claim for entry in claims.entries]
    if not devices or not are_selectors_short(devices):
        return
    if code is Code.EXCEEDS_PER_REQUEST_QUOTA:
        yield from _joined(_find_breaches(claims))
        return
    charges = claims.book.least_charges(claims.namespace, [claim.spec.devices for claim in devices])
    excesses = claims.book.ledger.excesses(charges)
    if code is Code.DEVICE_QUOTA_FULL:
        yield from _joined(_find_full(claims, excesses, is_pod=is_pod))
    else:
        yield from _joined(_find_excesses(claims, excesses))


def _joined(findings: Iterator[Finding]) -> Iterator[Finding]:
    """Yield one finding for a place, joined from those of several limits, errors first."""
    by_place: dict[tuple[FieldPath, FieldPath | None], list[Finding]] = defaultdict(list)
    for finding in findings:
        by_place[finding.path, finding.cause].append(finding)
    for of_place in by_place.values():
        # Of several limits, the number that is within all of them is the fix.
        first = min(of_place, key=lambda finding: (not finding.is_error, finding.fitting is None))
        others = [finding.detail for finding in of_place if finding is not first]
        yield replace(first, detail="; ".join((first.detail, *others)))


_FIXES: Final = (
    (
        Code.EXCEEDS_PER_REQUEST_QUOTA,
        Category.INFEASIBLE,
        "Request no more than the quota allows for one request or device, or raise its cap.",
    ),
    (
        Code.EXCEEDS_DEVICE_QUOTA,
        Category.INFEASIBLE,
        "Request no more than the whole limit of the quota, or raise it.",
    ),
)


_CODES: Final = (*(code for code, *_ in _FIXES), Code.DEVICE_QUOTA_FULL)

RULES: Final[tuple[Rule[Any], ...]] = (
    *rules_of_claims_and_pods(_FIXES, _validate_claim, _validate_pod),
    Rule(
        code=Code.DEVICE_QUOTA_FULL,
        scope=Scope.POD,
        category=Category.NOT_YET,
        validate=partial(_validate_pod, Code.DEVICE_QUOTA_FULL),
        fix="Wait until other pods of the tenant end, request less, or raise the DeviceQuota.",
        no_cel_reason=OTHER_OBJECTS,
    ),
)
