"""The wait of pods behind the gate, in words: the missing amount and its users."""

from typing import Final

from quotas.device_quotas.ledger import DeviceQuotaLedger, Excess
from quotas.device_quotas.tenants import Account
from quotas.gates.admission_order import Waiting

MAX_EXCESSES: Final = 3
MAX_NAMESPACES: Final = 3
OWNED: Final = (
    "the bridge allocates the devices of {driver}, and this pod names another scheduler; create it again, so that "
    "the bridge places it"
)
"""The reason a pod of another scheduler waits for a driver of the bridge."""


def waiting_note(waiting: Waiting, ledger: DeviceQuotaLedger) -> str:
    """Return the reason of a unit's wait."""
    if waiting.is_saved:
        return "what is left of a DeviceQuota is saved for a pod that has waited for longer"
    if waiting.lack is not None:
        return waiting.lack.note
    if waiting.missing:
        return (
            f"{_list(waiting.missing)} does not exist; what it will ask for is not known, so the pod waits "
            "until it is made"
        )
    texts = []
    for excess in waiting.excesses[:MAX_EXCESSES]:
        texts.append(excess.message)
        if isinstance(excess, Excess) and not excess.is_final:
            texts.append(_consumers(excess.account, ledger))
        elif not (isinstance(excess, Excess) and excess.account.limit.is_closed):
            texts.append("this pod never gets through unless the limit is raised")
    if waiting.unit.needed > 1:
        texts.append(f"{waiting.unit.needed} pods of the group wait together")
    return "; ".join(filter(None, texts))


def _consumers(account: Account, ledger: DeviceQuotaLedger) -> str:
    """Return the users of an amount, the largest first; empty without one."""
    parts = sorted(
        (
            (namespace, totals)
            for namespace, totals in ledger.by_namespace(account)
            if totals.committed
        ),
        key=lambda part: (-part[1].committed, part[0]),
    )
    largest = [
        f"namespace {namespace} has {account.limit.in_words(totals.committed)}"
        for namespace, totals in parts[:MAX_NAMESPACES]
    ]
    more = len(parts) - len(largest)
    return ", ".join(largest) + (f" and {more} more" if more > 0 else "")


def _list(texts: tuple[str, ...]) -> str:
    more = len(texts) - 1
    return f"{texts[0]} (and {more} more)" if more else texts[0]
