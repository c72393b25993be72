"""Fixes in words that are right at the first try. Pure.

A translation ends at an amount that is wrong in itself, such as one in another unit, before anybody asks whether
it fits. Its finding would name an amount, and the next check a smaller one; so where `fixes` proves another amount
for the place, the finding names that one.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from findings.checked_object import CheckedObject
from findings.equal_requests import IN_BOTH, OF_BOTH
from findings.field_path import FieldPath
from findings.finding import Code, Finding
from findings.fitting import Correction
from findings.fixes import MAX_ROUNDS, AppliedFix, Check, fix_objects
from kube.errors import QuantityError
from kube.quantity import Quantity


def settle_fixes(
    objects: Sequence[CheckedObject], check: Check, *, max_rounds: int = MAX_ROUNDS
) -> list[CheckedObject]:
    """Return all objects, with the amounts in their fixes that no later finding rejects.

    Only objects with such fixes are checked again.

    Args:
        max_rounds: Passed to `fix_objects`.
    """
    unsettled = [
        index for index, checked in enumerate(objects) if has_unsettled_fix(checked.findings)
    ]
    settled = list(objects)
    if not unsettled:
        return settled
    fixed_objects = fix_objects(
        [objects[index].source for index in unsettled], check, max_rounds=max_rounds
    )
    for index, fixed in zip(unsettled, fixed_objects, strict=True):
        fixes = {fix.path: fix for fix in fixed.fixes}
        # Where another amount is no number, nobody has asked yet whether this one is right.
        is_read = not any(
            finding.code is Code.INVALID_QUANTITY for finding in fixed.checked.findings
        )
        if is_read:
            findings = tuple(_settled(finding, fixes) for finding in objects[index].findings)
            settled[index] = replace(objects[index], findings=findings)
    return settled


def has_unsettled_fix(findings: Iterable[Finding]) -> bool:
    """Return True if an amount was found wrong before any was compared with devices."""
    return any(
        finding.is_error and finding.corrections and finding.fitting is None for finding in findings
    )


def _settled(finding: Finding, fixes: Mapping[FieldPath, AppliedFix]) -> Finding:
    """Return a finding with the amount that is proved, if that is another than it names."""
    if finding.fitting is not None or len(finding.corrections) != 1:
        return finding
    (correction,) = finding.corrections
    fix = fixes.get(correction.path)
    if fix is None:
        return finding
    try:
        amount = Quantity(fix.after)
    except QuantityError:
        return finding  # The place got another key or a text, which no amount replaces.
    settled = replace(finding, corrections=(Correction(path=correction.path, amount=amount),))
    if finding.code is Code.INVALID_QUANTITY and fix.code in (finding.code, Code.WRONG_UNIT):
        # The text told an amount, and its key the unit.
        return replace(settled, fix=f"write {fix.after}")
    if amount == correction.amount:
        return finding
    same = "be the same amount, and " if finding.code is Code.WRONG_UNIT else ""
    both = IN_BOTH if finding.code in OF_BOTH else ""
    words = f"write {fix.after}{both}: {correction.amount} would {same}be rejected as {fix.code}"
    return replace(settled, fix=words)
