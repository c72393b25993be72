"""Fixes in words that are right at the first try. Pure.

A translation ends at an amount that is wrong in itself, such as one in another unit, before anybody asks whether
it fits. Its finding would name an amount, and the next check a smaller one; so where `fixes` proves another amount
for the place, the finding names that one.
"""

from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace

from allocator.model.feature_gates import Features
from answers.manifests.check import CheckedObject, check_objects
from answers.manifests.fixes import AppliedFix, fix_objects
from answers.model.inputs import Inputs
from answers.model.kubernetes_version import Version
from answers.model.objects import merge_objects
from findings.field_path import FieldPath
from findings.finding import Code, Finding
from findings.fitting import Correction
from kube.manifests.source import SourceObject
from kube.quantity import Quantity


def settle_fixes(
    objects: Sequence[CheckedObject],
    inputs: Inputs,
    features: Features,
    policy_aware_schedulers: Collection[str] = (),
    *,
    kubernetes: Version | None = None,
) -> list[CheckedObject]:
    """Return all objects, with the amounts in their fixes that no later finding rejects.

    Only objects with such fixes are checked again. The other arguments are those of `check_objects`.
    """
    unsettled = [index for index, checked in enumerate(objects) if _is_unsettled(checked)]
    if not unsettled:
        return list(objects)
    state = tuple(merge_objects(inputs.state, inputs.manifests, inputs.namespace))

    def check(manifests: Sequence[SourceObject]) -> list[CheckedObject]:
        changed = replace(inputs, manifests=tuple(manifests), state=state, knows_cluster=True)
        return check_objects(changed, features, policy_aware_schedulers, kubernetes=kubernetes)

    fixed_objects = fix_objects([objects[index].source for index in unsettled], check)
    settled = list(objects)
    for index, fixed in zip(unsettled, fixed_objects, strict=True):
        fixes = {fix.path: fix for fix in fixed.fixes}
        findings = tuple(_settled(finding, fixes) for finding in objects[index].findings)
        settled[index] = replace(objects[index], findings=findings)
    return settled


def _is_unsettled(checked: CheckedObject) -> bool:
    """Return True if another amount was found wrong before any was compared with devices."""
    return any(
        finding.is_error and finding.corrections and finding.fitting is None
        for finding in checked.findings
    )


def _settled(finding: Finding, fixes: Mapping[FieldPath, AppliedFix]) -> Finding:
    """Return a finding with the amount that is proved, if that is another than it names."""
    if finding.fitting is not None or len(finding.corrections) != 1:
        return finding
    (correction,) = finding.corrections
    fix = fixes.get(correction.path)
    if fix is None or Quantity(fix.after) == correction.amount:
        return finding
    amount = Quantity(fix.after)
    same = "be the same amount, and " if finding.code is Code.WRONG_UNIT else ""
    return replace(
        finding,
        fix=f"write {fix.after}: {correction.amount} would {same}be rejected as {fix.code}",
        corrections=(Correction(path=correction.path, amount=amount),),
    )
