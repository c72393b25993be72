"""The total number of devices in the claims of a translation, by key.

One key may become several claims, since a claim has at most 32 devices, or a request with alternatives
of which the last one relates the devices by nothing. What counts for a fix is the total: any claims
for as many such devices, or fewer, fit where these fit.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from findings.field_path import FieldPath
from translation.compiling.claims import Claim


class RequestedKind(NamedTuple):
    """The devices of a request without their number.

    Attributes:
        path: The path of the key that requested them.
        body: The request without its name and number, and the configuration of its claim, as JSON.
    """

    path: FieldPath
    body: bytes


Totals = Mapping[RequestedKind, int]


def request_totals(claims: Sequence[Claim], counts: Mapping[tuple[int, int], int]) -> Totals | None:
    """Return the total for each kind of devices; None if a constraint relates devices, or they are not counted.

    Args:
        counts: Index of a claim and of a request to the number to request instead.
    """
    totals: Counter[RequestedKind] = Counter()
    for number, claim in enumerate(claims):
        devices = claim.spec["spec"]["devices"]
        related_names = {
            name
            for constraint in devices.get("constraints") or ()
            for name in constraint.get("requests") or ("",)
        }
        for index, request in enumerate(devices.get("requests") or ()):
            path = claim.source(FieldPath.of("requests", index))
            body = _unrelated_form(request, related_names)
            count = body.pop("count", None) if body is not None else None
            if path is None or body is None or not isinstance(count, int):
                return None
            encoded = msgspec.json.encode((body, devices.get("config")), order="sorted")
            kind = RequestedKind(path, encoded)
            totals[kind] += counts.get((number, index), count)
    return totals


def _unrelated_form(
    request: Mapping[str, Any], related_names: Collection[str]
) -> dict[str, Any] | None:
    """Return the last form of a request that no constraint relates; None if there is none.

    Args:
        related_names: The names in constraints; an empty one means all requests.
    """
    name = request["name"]
    if "" in related_names or name in related_names:
        return None
    if "exactly" in request:
        return dict(request["exactly"])
    for alternative in reversed(request.get("firstAvailable") or ()):
        if f"{name}/{alternative['name']}" not in related_names:
            return {key: value for key, value in alternative.items() if key != "name"}
    return None
