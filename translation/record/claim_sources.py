"""Findings about translated claims, at the legacy keys that requested them.

The author of `nvidia.com/gpumem: 90000` wrote no claim, so a path into a claim would not help them.
"""

from collections.abc import Iterable, Sequence

import msgspec

from findings.field_path import FieldPath, Key
from findings.finding import Code, Finding
from findings.text import printable
from kube.api.core import PodResourceClaim
from translation.compiling.claims import Claim

CLAIMS = FieldPath.of("spec", "resourceClaims")
"""The entries of a pod that refer to claims."""
_CONTAINERS = FieldPath.of("spec", "containers")
_REQUESTS = FieldPath.of("requests")
_CONSTRAINTS = FieldPath.of("constraints")


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
    fix = finding.fix
    if finding.code is Code.JOINTLY_INFEASIBLE and not fix:
        fix = _separation(translated_claims)
    return msgspec.structs.replace(
        finding,
        path=pod.join(source_path(translated_claims, finding.cause)),
        fix=fix,
        # The place in the claim does not help an author who wrote no claim.
        cause=None,
        rewrites=(),
    )


def _separation(claims: Sequence[Claim]) -> str:
    """Return the advice to drop the keys of one of two claims; each of them alone is feasible.

    Empty for claims of one driver, of which less may be requested, and for those with a key in common.
    """
    if len(claims) != 2:
        return ""
    first, second = claims
    keys, other_keys = _keys_of(first), _keys_of(second)
    drivers = first.drivers.isdisjoint(second.drivers)
    if not drivers or not keys or not other_keys or not set(keys).isdisjoint(other_keys):
        return ""
    names, other_names = " and ".join(keys), " and ".join(other_keys)
    return (
        f"drop {names}, or drop {other_names}: they come from different drivers, and no node serves both "
        "as requested"
    )


def _keys_of(claim: Claim) -> tuple[str, ...]:
    names = (path.steps[-1] for path in claim.sources.values() if path.steps)
    return tuple(sorted({printable(name.name) for name in names if isinstance(name, Key)}))


def widened_at_source(claim: Claim, field: FieldPath) -> str:
    """Return another choice of devices as a change of the key, or the annotation, that chose them; else empty.

    Args:
        field: The `constraints` of the claim, or the selectors of one of its requests.
    """
    match _source_of_choice(claim, field):
        case FieldPath(steps=("metadata", "annotations", Key(name=name))):
            return f"remove annotation {printable(name)}, or change it,"
        case FieldPath(steps=(*_, "resources", "limits", Key(name=name))):
            return f"write another key for {printable(name)}"
        case _:
            return ""


def _source_of_choice(claim: Claim, field: FieldPath) -> FieldPath | None:
    if field != _CONSTRAINTS:
        return claim.source(field)
    paths = {path for place, path in claim.sources.items() if place.steps[:1] == field.steps}
    return paths.pop() if len(paths) == 1 else None


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
