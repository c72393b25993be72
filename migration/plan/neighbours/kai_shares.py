"""Notes on the pods of KAI that hold shared GPUs, and on its webhook. Pure."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from findings.text import count_text, join_names
from kube.manifests.source import SourceObject
from migration.cluster.evidence import mapping_at
from migration.cluster.reservations import is_reservation
from migration.legacy.kai_webhook import KAI_WEBHOOK, leave_kai_webhook
from migration.plan.model.plan import Wave

_NAMES: Final = 5
"""Pods that a note names."""


def reservation_notes(wave: Wave, objects: Iterable[SourceObject]) -> Iterator[str]:
    """Yield a note on the pods of KAI that hold GPUs of a wave's nodes for others.

    Args:
        wave: The wave with its nodes.
        objects: The cluster's objects, without pods of controllers.
    """
    nodes = {node.name for node in wave.nodes}
    places = {
        f"{source.namespace or 'default'}/{source.name}": str(
            mapping_at(source.document, "spec").get("nodeName")
        )
        for source in objects
        if is_reservation(source)
    }
    pods = sorted(name for name, node in places.items() if node in nodes)
    if pods:
        verb = "holds" if len(pods) == 1 else "hold"
        yield (
            f"{count_text(len(pods), 'pod')} of KAI {verb} GPUs of its nodes for pods with shares: {join_names(pods, _NAMES)}; drains "
            "leave them, and KAI deletes each once no pod shares its GPU any more: delete none by hand, since KAI then "
            "deletes all pods that share its GPU at once, whatever their budgets allow"
        )


def kai_namespaces(wave: Wave, changed: Collection[str]) -> tuple[str, ...]:
    """Return the namespaces of shares that a wave gives claims while KAI's webhook changes their pods.

    In a namespace that moves in parts, earlier ones have their claims, and later ones keep KAI's scheduler.

    Args:
        wave: The wave with its workloads.
        changed: The workloads, as `Kind/namespace/name`, that get claims, and with pods that the webhook has changed.
    """
    names = (entry.object for entry in wave.workloads)
    return tuple(sorted({name.split("/")[1] for name in names if name in changed}))


def kai_webhook_notes(namespaces: Sequence[str]) -> Iterator[str]:
    """Yield a note on the namespaces of `kai_namespaces`."""
    if namespaces:
        yield (
            f"{KAI_WEBHOOK}: {leave_kai_webhook(namespaces)}; switch.sh stops for that before it opts in, and rollback.sh, once "
            "their label is off, until the webhook takes them again"
        )
