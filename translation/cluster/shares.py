"""Requests of parts of devices among claims. Pure."""

from collections.abc import Iterator

from translation.compiling.claims import Claim


def requests_share(claim: Claim) -> Iterator[bool]:
    """Yield for each request of a claim True if it requests parts of devices."""
    for request in claim.spec["spec"]["devices"]["requests"]:
        alternatives = request.get("firstAvailable") or [request["exactly"]]
        yield any("capacity" in alternative for alternative in alternatives)
