"""Findings about translated claims, at the legacy keys that requested them.

The author of `nvidia.com/gpumem: 90000` wrote no claim, so a path into a claim would not help them.
"""

from collections.abc import Iterable, Sequence

import msgspec

from findings.field_path import FieldPath
from findings.finding import Finding
from kube.api.core import PodResourceClaim
from translation.compiling.claims import Claim

CLAIMS = FieldPath.of("spec", "resourceClaims")
"""The entries of a pod that refer to claims."""
_CONTAINERS = FieldPath.of("spec", "containers")
_REQUESTS = FieldPath.of("requests")


def match_claims(
    entries: Iterable[PodResourceClaim], claims: Iterable[Claim]
) -> tuple[Claim | None, ...]:
    """Return for each entry of a pod's claims the translated claim; None for other entries."""
    unmatched_claims = list(claims)
    matches: list[Claim | None] = []
    for entry in entries:
        template = entry.resource_claim_template_name
        match = next((claim for claim in unmatched_claims if claim.template == template), None)
        if match is not None:
            unmatched_claims.remove(match)
        matches.append(match)
    return tuple(matches)


def locate_at_keys(finding: Finding, pod: FieldPath, claims: Sequence[Claim | None]) -> Finding:
    """Return a finding about translated claims with the path of the key that requested them.

    Other findings, and those about claims in the manifest, are returned as they are.

    Args:
        pod: The path of the pod in the object.
        claims: The translated claim for each entry of the pod's claims; None for other entries.
    """
    entry = finding.path.relative_to(pod.join(CLAIMS))
    if entry is None:
        return finding
    index = next((step for step in entry.steps if isinstance(step, int)), None)
    candidate_claims = claims if index is None else claims[index : index + 1]
    translated_claims = [claim for claim in candidate_claims if claim is not None]
    if not translated_claims or len(translated_claims) < len(candidate_claims):
        return finding
    return msgspec.structs.replace(
        finding,
        path=pod.join(source_path(translated_claims, finding.cause)),
        # The place in the claim does not help an author who wrote no claim.
        cause=None,
    )


def source_path(claims: Sequence[Claim], field: FieldPath | None = None) -> FieldPath:
    """Return the path of the key that requested a field; all containers if there are several.

    Args:
        field: The field's path below the `devices` of the only claim; None for the claims as a
            whole.
    """
    if field is not None and len(claims) == 1:
        path = claims[0].source(field)
        if path is not None:
            return path
    paths = {
        path
        for claim in claims
        for index in range(len(claim.spec["spec"]["devices"]["requests"]))
        if (path := claim.source(_REQUESTS.child(index))) is not None
    }
    return paths.pop() if len(paths) == 1 else _CONTAINERS
