"""The notes on workloads with work in several pods, some of them on nodes outside a wave. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from findings.text import join_names
from migration.plan.model.plan import PlannedWork, Wave

_NAMES: Final = 8
"""The most pods that a note names."""


def with_shared_work(
    wave: Wave, waves: Sequence[Wave], work: Mapping[str, Sequence[PlannedWork]]
) -> Wave:
    """Return a wave with a note on each workload with other pods that lose work with an evicted one.

    Nodes of one training come together where that fits, and where no other reason holds some of them. Pods on nodes of
    earlier waves have ended by then, or have begun anew.

    Args:
        wave: The wave with its work.
        waves: All waves.
        work: Node to the pods that lose something when they are evicted, as of today.
    """
    numbers = {node.name: entry.wave for entry in waves for node in entry.nodes}
    own = {item.group: item for item in wave.work if item.group}
    ending_pods = {pod for item in wave.work for pod in item.ending}
    others: dict[str, list[str]] = {}
    for node in sorted(work):
        number = numbers.get(node)
        if number is not None and number <= wave.wave:
            continue
        when = "no wave" if number is None else f"wave {number}"
        for item in work[node]:
            if item.group in own and item.pod not in ending_pods:
                name = f"{item.pod.partition('/')[2]} on {node} ({when})"
                others.setdefault(item.group, []).append(name)
    notes = tuple(_notes(own, others))
    return msgspec.structs.replace(wave, notes=(*wave.notes, *notes)) if notes else wave


def _notes(own: Mapping[str, PlannedWork], others: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield the notes.

    Args:
        own: Workload, as `Kind/namespace/name`, to a pod of it that the wave evicts.
        others: Workload to the texts about its pods elsewhere.
    """
    for group, names in sorted(others.items()):
        item, pods = own[group], join_names(names, _NAMES)
        if not item.waits:
            yield f"with one evicted pod {group} may start those on other nodes anew, too: {pods}"
            continue
        end = (
            "" if item.never_ends else "; where that counts, let it end by itself before this wave"
        )
        yield (
            f"with one evicted pod {group} may lose the work of those on other nodes, too: {pods}{end}"
        )
