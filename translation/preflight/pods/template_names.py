"""Templates of a claim's name that exist with other content."""

from collections.abc import Iterator, Sequence

from findings.field_path import FieldPath
from findings.finding import Code, Finding, error
from translation.cluster.snapshot import TranslationSnapshot
from translation.compiling.claims import Claim


def check_template_names(
    claims: Sequence[Claim], namespace: str, snapshot: TranslationSnapshot
) -> Iterator[Finding]:
    """Yield an error for each template of a claim's name that exists with other content."""
    for claim in claims:
        existing = snapshot.templates.get((namespace, claim.template))
        if existing is not None and existing.digest != claim.digest:
            yield error(
                Code.TEMPLATE_CONFLICT,
                FieldPath.of("spec", "resourceClaims"),
                f"ResourceClaimTemplate {claim.template} exists with content that does not match "
                "its name",
                f"delete it: kubectl delete resourceclaimtemplate -n {namespace} {claim.template}",
            )
