"""When a verdict about the inventory is an error: the conditions of a denial, in one place.

It denies only where the inventory is proof: nothing is missing of what the drivers publish, there was
never more, nobody adds nodes, and whoever enforces wants it denied. Else it is a warning that says
which of these is not so.
"""

from collections.abc import Collection

from kube.product import ENFORCEMENT_LABEL
from webhook.findings import Code, Finding, error, warning
from webhook.rules.context import Context
from webhook.rules.enforcement import Enforcement
from webhook.rules.mark import shortfall


def standing(
    context: Context,
    namespace: str,
    *,
    drivers: Collection[str],
    classes: Collection[str],
    doubt: str = "",
) -> tuple[Enforcement, str]:
    """Return what is done about a verdict, and why it is not denied; nothing where it is.

    Args:
        namespace: Where the object is.
        drivers: Whose devices it is about.
        classes: That it is about, by name.
        doubt: Why the verdict may pass by itself.
    """
    label = context.namespaces.get(namespace, {}).get(ENFORCEMENT_LABEL)
    found, why = context.configured.of(drivers, label)
    if found is not Enforcement.DENY:
        return found, why
    doubt = doubt or _growth(context) or _gap(context, drivers) or _fall(context, classes)
    return (Enforcement.WARN, doubt) if doubt else (Enforcement.DENY, "")


def told(
    code: Code, path: str, message: str, *, by: tuple[Enforcement, str], details: str = "", fix: str
) -> tuple[Finding, ...]:
    """Return the finding of a verdict, as it stands; nothing where nobody wants to hear it."""
    enforcement, why = by
    listed = f" ({details})" if details else ""
    if enforcement is Enforcement.OFF:
        return ()
    if enforcement is Enforcement.DENY:
        return (error(code, path, f"{message}{listed}", fix),)
    # Warnings are cut where they are long, so this comes first.
    return (warning(code, path, f"{message}; only a warning, since {why}{listed}", fix),)


def _growth(context: Context) -> str:
    names = " and ".join(sorted(context.growers))
    return f"{names} may add nodes" if names else ""


def _gap(context: Context, drivers: Collection[str]) -> str:
    if context.emptied is not None:
        return context.emptied.doubt(drivers)
    return "" if context.inventory.is_proof(drivers) else "not all is known of the inventory"


def _fall(context: Context, classes: Collection[str]) -> str:
    if context.emptied is None:
        return ""
    stocks = ((name, context.emptied.stock(name)) for name in sorted(classes))
    return next(
        (fallen for name, stock in stocks if (fallen := shortfall(context.mark, name, stock))), ""
    )
