"""Writes of claims in an audit log of the API server, in the order of their versions.

The audit policy has to log `resourceclaims` and `resourceclaims/status` at level RequestResponse.
Source: audit.k8s.io/v1 Event.
"""

from collections.abc import Iterable, Iterator

import msgspec

from kube.api.meta import ApiStruct, decode
from kube.api.resource import ResourceClaim
from kube.errors import ConfigError


class _ObjectReference(ApiStruct, frozen=True, kw_only=True):
    resource: str = ""
    api_group: str = ""


class _Status(ApiStruct, frozen=True, kw_only=True):
    code: int = 0


class _User(ApiStruct, frozen=True, kw_only=True):
    username: str = ""


class _Event(ApiStruct, frozen=True, kw_only=True):
    stage: str = ""
    verb: str = ""
    request_uri: str = msgspec.field(default="", name="requestURI")
    user: _User = _User()
    object_ref: _ObjectReference | None = None
    response_status: _Status | None = None
    response_object: msgspec.Raw = msgspec.Raw(b"null")
    stage_timestamp: str = ""


class LoggedClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A claim as a write left it, with its time and its user."""

    time: str
    user: str
    claim: ResourceClaim


_WRITES = frozenset({"create", "update", "patch"})


def read_claims(lines: Iterable[bytes]) -> list[LoggedClaim]:
    """Return the claims that writes left, by resourceVersion; dry runs and refusals are left out.

    Raises:
        ConfigError: A line is no audit event, or the log has no claims in its responses.
    """
    claims: list[tuple[int, LoggedClaim]] = []
    omitted_count = 0
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            event = decode(line, _Event)
            if not _is_write_of_claim(event):
                continue
            if bytes(event.response_object) == b"null":
                omitted_count += 1
                continue
            claim = decode(bytes(event.response_object), ResourceClaim)
            version = int(claim.metadata.resource_version or 0)
        except (msgspec.DecodeError, ValueError) as error:
            raise ConfigError(f"line {number} is no audit event: {error}") from error
        logged_claim = LoggedClaim(
            time=event.stage_timestamp, user=event.user.username, claim=claim
        )
        claims.append((version, logged_claim))
    if omitted_count:
        raise ConfigError(
            f"{omitted_count} writes of ResourceClaims are logged without their response; log "
            "resourceclaims and resourceclaims/status at level RequestResponse"
        )
    return [logged_claim for _, logged_claim in sorted(claims, key=lambda pair: pair[0])]


def _is_write_of_claim(event: _Event) -> bool:
    reference, status = event.object_ref, event.response_status
    return (
        event.stage == "ResponseComplete"
        and event.verb in _WRITES
        and reference is not None
        and (reference.api_group, reference.resource) == ("resource.k8s.io", "resourceclaims")
        and status is not None
        and 200 <= status.code < 300
        and "dryRun=" not in event.request_uri
    )


def lines_of(path: str) -> Iterator[bytes]:
    """Yield the lines of a file; - is standard input."""
    # Opened here, so that a log of gigabytes is read line by line.
    if path == "-":
        import sys  # noqa: PLC0415

        yield from sys.stdin.buffer
        return
    with open(path, "rb") as log:  # noqa: PTH123
        yield from log
