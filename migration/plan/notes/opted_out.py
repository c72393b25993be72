"""The notes on evicted pods of whole devices in namespaces that are opted out: Kubernetes serves them on switched nodes, too. Pure."""

from collections.abc import Collection, Iterator, Sequence
from typing import Final

import msgspec

from findings.text import join_names
from migration.plan.drivers.vendors import driver_label
from migration.plan.model.plan import Wave
from migration.plan.search.device_map import WaveDetails

_NOTE: Final = (
    "pods of {} are evicted, and may get devices of a DRA driver, though their namespace is opted out, which leaves their device "
    "keys: where they are to stay with the device plugin, give their templates a required node affinity with {}, which leaves out "
    "switched nodes, and plan again from a new snapshot: it keeps nodes for them"
)


def with_opted_out(
    waves: Sequence[Wave], details: Sequence[WaveDetails], opted_out: Collection[str]
) -> Iterator[Wave]:
    """Yield the waves, each with a note on the workloads of opted-out namespaces with pods that it evicts first.

    Args:
        waves: The waves, in order.
        details: The details of each of them.
        opted_out: The native workloads of such namespaces, as `Kind/namespace/name`.
    """
    switched = {node.name for wave in waves for node in wave.nodes}
    last = details[-1].places if details else {}
    # By the last wave those that keep away from switched nodes are on others.
    left = {key.workload for key, node in last.items() if node in switched}.intersection(opted_out)
    for wave, entry in zip(waves, details, strict=True):
        names = sorted(left & entry.evicted.keys())
        left.difference_update(names)
        labels = {driver_label(driver)[0] for node in wave.nodes for driver in node.devices}
        terms = " and ".join(f"{label} DoesNotExist" for label in sorted(labels))
        note = (_NOTE.format(join_names(names), terms),) if names and terms else ()
        yield msgspec.structs.replace(wave, notes=(*wave.notes, *note))
