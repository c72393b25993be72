"""Stored quotas, queues, LimitRanges and admission policies that name device keys, and so do not see claims."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from controllers.audit.policy_reports import ReportedFinding
from controllers.audit.report import FindingKey
from controllers.audit.unsearched_kinds import UnsearchedKinds
from findings.finding import Finding
from kube.api.meta import decode
from kube.api.policy_reports import ReportSubject
from kube.api.urls import (
    FOREIGN_QUOTA_RESOURCES,
    LIMIT_RANGES,
    MUTATING_ADMISSION_POLICIES,
    RESOURCE_QUOTAS,
    VALIDATING_ADMISSION_POLICIES,
    Resource,
)
from kube.client.client import Client
from kube.errors import Forbidden, KubeError, NotFound
from kube.logs import get_logger
from translation.model.intents import Vocabulary
from translation.reading.claim_blind_objects import find_unseen_claims

LISTED: Final[Mapping[str, Resource]] = {
    "LimitRange": LIMIT_RANGES,
    "MutatingAdmissionPolicy": MUTATING_ADMISSION_POLICIES,
    "ResourceQuota": RESOURCE_QUOTAS,
    "ValidatingAdmissionPolicy": VALIDATING_ADMISSION_POLICIES,
    **{
        f"{kind}.{resource.group}": resource
        for (_, kind), resource in FOREIGN_QUOTA_RESOURCES.items()
    },
}
"""Kind, of other schedulers with its group, to the resource; of two projects a kind is called Queue."""
MAX_LOGGED: Final = 100
"""Objects in the log of one audit."""

log = get_logger()


class ClaimBlindObject(NamedTuple):
    """An object, and the finding about it."""

    kind: str
    namespace: str
    name: str
    finding: Finding


async def list_claim_blind_objects(
    client: Client,
    vocabularies: Mapping[str, Vocabulary],
    unsearched_kinds: UnsearchedKinds,
    before: Sequence[ClaimBlindObject] = (),
) -> list[ClaimBlindObject]:
    """Return the stored objects that name device keys and do not see claims.

    Kinds that may not be listed, or do not exist, are left out. Of a kind that cannot be listed now, such as one
    whose conversion webhook does not answer, the objects of the last audit count.

    Args:
        unsearched_kinds: The kinds that previous audits could not search; changed by this one.
        before: The result of the last audit.

    Raises:
        KubeError: The API server does not answer as it should, for the first times.
    """
    blind_objects: list[ClaimBlindObject] = []
    for kind, resource in LISTED.items():
        of_kind: list[ClaimBlindObject] = []
        try:
            async for page in client.pages(resource):
                for raw in page.items:
                    of_kind += _findings(kind, resource, bytes(raw), vocabularies)
        except KubeError as fault:
            is_refused = isinstance(fault, Forbidden | NotFound)
            if not is_refused and unsearched_kinds.needs_another_try(kind):
                raise
            unsearched_kinds.failed(kind, fault)
            of_kind = [] if is_refused else [blind for blind in before if blind.kind == kind]
        else:
            unsearched_kinds.searched(kind)
        blind_objects += of_kind
    return blind_objects


def _findings(
    kind: str, resource: Resource, raw: bytes, vocabularies: Mapping[str, Vocabulary]
) -> Iterator[ClaimBlindObject]:
    try:
        document: dict[str, Any] = decode(raw, dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return
    metadata = document.get("metadata") or {}
    head = {"apiVersion": _api_version(resource), "kind": kind.partition(".")[0]}
    for finding in find_unseen_claims({**document, **head}, vocabularies):
        yield ClaimBlindObject(
            kind, metadata.get("namespace", ""), metadata.get("name", ""), finding
        )


def report_claim_blind_object(blind: ClaimBlindObject) -> ReportedFinding:
    """Return an object as a report names it."""
    resource = LISTED[blind.kind]
    subject = ReportSubject(
        api_version=_api_version(resource),
        kind=blind.kind.partition(".")[0],
        namespace=blind.namespace,
        name=blind.name,
    )
    return ReportedFinding(subject, blind.finding)


def _api_version(resource: Resource) -> str:
    return "/".join(filter(None, (resource.group, resource.version)))


def log_claim_blind_objects(objects: Iterable[ClaimBlindObject]) -> None:
    """Log each object, up to a bound."""
    for blind in list(objects)[:MAX_LOGGED]:
        log.warning(
            "claims.not_seen",
            kind=blind.kind,
            object=f"{blind.namespace}/{blind.name}".lstrip("/"),
            message=blind.finding.message,
            fix=blind.finding.fix,
        )


def count_claim_blind_objects(objects: Iterable[ClaimBlindObject]) -> Mapping[FindingKey, int]:
    """Return the findings about these objects."""
    return Counter(
        (blind.kind, blind.finding.severity.value, blind.finding.code.value) for blind in objects
    )
