"""The part of a node's checkpoint that the claims of one namespace may take.

Users choose how many claims they have, and how long the record of one is. So that one namespace does not keep
the claims of others from being prepared, it may take a small part only once the records of the node take
more than nodes need.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from driver.model.record import Record
from driver.plan.checkpoint import MAX_BYTES
from kube.api.meta import encode

OPEN_BYTES: Final = MAX_BYTES // 4
"""Bytes of records up to which everybody's claims are prepared; 8,192 prepared devices take half of it."""
NAMESPACE_BYTES: Final = MAX_BYTES // 64
"""Bytes of records of one namespace, where all of them take more than `OPEN_BYTES`."""


def find_excess(
    new_records: Iterable[Record], prepared_records: Iterable[Record]
) -> Mapping[str, str]:
    """Return new records beyond the part of their namespaces, with the reasons, by uid.

    Args:
        new_records: The records of claims in the order in which they count.
        prepared_records: The records of the node's other claims.
    """
    used = Counter[str]()
    for record in prepared_records:
        used[record.namespace] += len(encode(record))
    excess: dict[str, str] = {}
    for record in new_records:
        size = len(encode(record))
        of_namespace = used[record.namespace] + size
        if of_namespace > NAMESPACE_BYTES and used.total() + size > OPEN_BYTES:
            excess[record.uid] = (
                f"the records of this node's claims would take more than {OPEN_BYTES >> 20} MiB,"
                f" and those of this namespace more than {NAMESPACE_BYTES >> 20} MiB of it;"
                " delete pods with large claims"
            )
        else:
            used[record.namespace] = of_namespace
    return excess
