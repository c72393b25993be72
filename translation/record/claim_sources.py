"""Findings about translated claims, at the legacy keys that requested them.

The author of `nvidia.com/gpumem: 90000` wrote no claim, so a path into a claim would not help them.
"""

from collections.abc import Iterable, Sequence

import msgspec

from findings.field_path import FieldPath, Key
from findings.finding import Finding
from findings.fitting import DroppedRequest, OtherValue, drop_one
from findings.text import printable
from kube.api.core import PodResourceClaim
from translation.compiling.claims import Claim
from translation.record.annotation_parts import constraining_part
from translation.record.recorded_translation import RecordedTranslation

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
    fix = _separation(finding.droppable, pod, claims) or finding.fix
    return msgspec.structs.replace(
        finding,
        path=pod.join(source_path(translated_claims, finding.cause)),
        fix=fix,
        # The place in the claim does not help an author who wrote no claim.
        cause=None,
        rewrites=(),
    )


def _separation(
    droppable: Sequence[DroppedRequest], pod: FieldPath, claims: Sequence[Claim | None]
) -> str:
    """Return the advice to drop the keys of one of some requests; empty if one of them has no keys of its own."""
    keys_by_request = [keys_of(dropped, pod, claims) for dropped in droppable]
    names = [" and ".join(keys) for keys in dict.fromkeys(keys_by_request)]
    return drop_one(names) if all(names) else ""


def keys_of(
    dropped: DroppedRequest, pod: FieldPath, claims: Sequence[Claim | None]
) -> tuple[str, ...]:
    """Return the keys of a request, sorted; empty for one of another claim."""
    claim = claim_at(dropped.claim, pod, claims)
    if claim is None:
        return ()
    place = ("requests", dropped.index)
    paths = [path for field, path in claim.sources.items() if field.steps[:2] == place]
    return tuple(
        sorted(
            {printable(path.steps[-1].name) for path in paths if isinstance(path.steps[-1], Key)}
        )
    )


def claim_at(path: FieldPath, pod: FieldPath, claims: Sequence[Claim | None]) -> Claim | None:
    """Return the translated claim that a path in the object refers to; None for another claim."""
    entry = path.relative_to(pod.join(CLAIMS))
    index = next((step for step in entry.steps if isinstance(step, int)), None) if entry else None
    return claims[index] if index is not None and index < len(claims) else None


def widened_at_source(
    claim: Claim,
    field: FieldPath,
    translation: RecordedTranslation,
    value: OtherValue | None = None,
) -> str:
    """Return another choice of devices as a change of the key, or the annotation, that chose them; else empty.

    Args:
        field: A constraint of the claim, or the selectors of one of its requests.
        value: The value to require; None where the choice is to be wider.
    """
    match _source_of_choice(claim, field):
        case FieldPath(steps=("metadata", "annotations", Key(name=name))):
            part = constraining_part(name, translation) if _is_constraint(field) else ""
            if part:
                return f"remove {printable(part)} from annotation {printable(name)}"
            return f"remove annotation {printable(name)}, or change it,"
        case FieldPath(steps=(*_, "resources", "limits", Key(name=name))):
            other = _with_value(name, value) if value is not None else ""
            return f"write {printable(other) or 'another key'} for {printable(name)}"
        case _:
            return ""


def _with_value(name: str, value: OtherValue) -> str:
    """Return a resource name that ends with a value, such as a MIG profile, with another one; else empty."""
    before, after = (text.replace("+", ".") for text in (value.before, value.after))
    return name.removesuffix(before) + after if before and name.endswith(before) else ""


def _source_of_choice(claim: Claim, field: FieldPath) -> FieldPath | None:
    return claim.sources.get(field) if _is_constraint(field) else claim.source(field)


def _is_constraint(field: FieldPath) -> bool:
    return field.steps[:1] == ("constraints",)


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
