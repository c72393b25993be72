"""The conditions that make a verdict about the inventory an error.

It is an error only where the inventory is evidence: the drivers' pools are complete, the inventory is
at its high-water mark, nothing adds nodes, and enforcement is `deny`. Otherwise it is a warning that
names the condition that does not hold.
"""

from collections.abc import Collection

import msgspec

from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, warning
from kube.names import ENFORCEMENT_LABEL
from rules.context.context import Context
from rules.feasibility.enforcement import Enforcement
from rules.feasibility.high_water_mark import shortfall


def decide_enforcement(
    context: Context,
    namespace: str,
    *,
    drivers: Collection[str],
    classes: Collection[str],
    doubt: str = "",
) -> tuple[Enforcement, str]:
    """Return the enforcement of a verdict, and the reason if it is a warning.

    Args:
        namespace: Namespace of the object.
        drivers: Drivers of the devices that the verdict is about.
        classes: Names of the DeviceClasses that it is about.
        doubt: The reason the verdict may be wrong with any inventory; empty if it is not.
    """
    label = context.namespaces.get(namespace, {}).get(ENFORCEMENT_LABEL)
    enforcement, reason = context.enforcement.effective(drivers, label)
    if enforcement is not Enforcement.DENY:
        return enforcement, reason
    doubt = (
        doubt
        or _autoscaler_doubt(context)
        or _inventory_doubt(context, drivers)
        or _high_water_doubt(context, classes)
    )
    return (Enforcement.WARN, doubt) if doubt else (Enforcement.DENY, "")


def build_findings(
    code: Code,
    path: FieldPath,
    message: str,
    *,
    enforcement: tuple[Enforcement, str],
    reasons: tuple[str, ...] = (),
    fix: str,
    cause: FieldPath | None = None,
) -> tuple[Finding, ...]:
    """Return the finding of a verdict; nothing if enforcement is off.

    Args:
        enforcement: The result of `decide_enforcement`.
        reasons: The reasons against the devices of nodes, by group of nodes.
        cause: The place in the claim, where `path` only refers to the claim; the message has it first.
    """
    level, reason = enforcement
    if level is Enforcement.OFF:
        return ()
    if level is Enforcement.DENY:
        finding = error(code, path, message, fix)
    else:
        finding = warning(code, path, f"{message}; only a warning, since {reason}", fix)
    return (msgspec.structs.replace(finding, cause=cause, reasons=reasons),)


def _autoscaler_doubt(context: Context) -> str:
    names = " and ".join(sorted(context.autoscalers))
    return f"{names} may add nodes" if names else ""


def _inventory_doubt(context: Context, drivers: Collection[str]) -> str:
    if context.idle_cluster is not None:
        return context.idle_cluster.evidence_gap(drivers)
    return "" if context.inventory.is_complete_for(drivers) else "the inventory is incomplete"


def _high_water_doubt(context: Context, classes: Collection[str]) -> str:
    if context.idle_cluster is None:
        return ""
    stocks = ((name, context.idle_cluster.class_stock(name)) for name in sorted(classes))
    return next(
        (
            lack
            for name, stock in stocks
            if (lack := shortfall(context.high_water_mark, name, stock))
        ),
        "",
    )
