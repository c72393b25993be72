"""The part of an allocation in the record of a claim: as little as is needed later.

Users choose how long the lists of an allocation are, and the records of all claims of a node share one file
with a bound. So a record keeps no list that only the scheduler or the API server reads, names no request
without a device of the driver, and keeps each setting of a request once.
"""

from collections.abc import Iterable

import msgspec

from driver.plan.config import applies_to
from kube.api.resource import DeviceAllocationConfiguration, DeviceRequestAllocationResult


def recorded_results(
    results: Iterable[DeviceRequestAllocationResult],
) -> tuple[DeviceRequestAllocationResult, ...]:
    """Return results without the fields of the scheduler."""
    return tuple(
        msgspec.structs.replace(
            result, tolerations=None, binding_conditions=None, binding_failure_conditions=None
        )
        for result in results
    )


def recorded_config(
    config: Iterable[DeviceAllocationConfiguration],
    results: Iterable[DeviceRequestAllocationResult],
    driver: str,
) -> tuple[DeviceAllocationConfiguration, ...]:
    """Return the configuration of some results, each entry with the requests of these.

    The parameters of other entries are unread. Since later entries override earlier ones, an entry does not
    count for a request where a later one has the same parameters.
    """
    requests = tuple(dict.fromkeys(result.request for result in results))
    later: set[tuple[str, bytes]] = set()
    entries: list[DeviceAllocationConfiguration] = []
    for entry in reversed(tuple(config)):
        if entry.opaque is None:
            continue
        parameters = msgspec.json.encode(entry.opaque.parameters, order="deterministic")
        counting = tuple(
            request
            for request in requests
            if applies_to(entry, request, driver) and (request, parameters) not in later
        )
        later.update((request, parameters) for request in counting)
        if counting:
            is_for_all = len(counting) == len(requests)
            entries.append(
                msgspec.structs.replace(entry, requests=None if is_for_all else counting)
            )
    return tuple(reversed(entries))
