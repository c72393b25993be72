"""Findings about claims that a translation made, told where the manifest asked for them. Pure.

Who wrote `nvidia.com/gpu: 9` has no `spec.resourceClaims` to look at.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from cli.manifests import Translated
from webhook.claims import Claim
from webhook.edits import CONTAINER_FIELDS
from webhook.findings import Finding
from webhook.workloads import pod_path, reached

_ENTRY: Final = re.compile(r"spec\.resourceClaims(?:\[(?P<index>\d+)\])?")
_REQUEST: Final = re.compile(r"\brequests\[(?P<index>\d+)\]")
_IN_CLAIM: Final = re.compile(r"^(?:[\w.]+\.)?(?:requests|constraints|config)(?:\[\d+\]\S*)?: ")


def where_asked(finding: Finding, result: Translated) -> Finding:
    """Return the finding with the path of the limits, or the one limit, that ask for the devices.

    That is all containers where several ask for them. Findings about anything else, and about claims that the pod names itself, stay as they are.
    """
    prefix = pod_path(result.source.api_version, result.source.kind) or ()
    below = finding.path.removeprefix(".".join(prefix)).removeprefix(".")
    entry = _ENTRY.match(below)
    if entry is None:
        return finding
    _, before = reached(result.source.document, prefix)
    _, after = reached(result.document, prefix)
    containers = _containers(result, entry["index"], after, finding)
    places = [place for name, place in _limits(before, after) if name in containers]
    if not places:
        return finding
    place = places[0] if len(places) == 1 else "spec.containers"
    return msgspec.structs.replace(
        finding,
        path=".".join((*prefix, place)),
        message=_IN_CLAIM.sub("", finding.message, count=1),
    )


def _containers(
    result: Translated, index: str | None, pod: Mapping[str, Any], finding: Finding
) -> set[str]:
    """Return the containers that use what the finding is about, of claims that were made."""
    claims = result.claims
    if index is not None:
        entry = pod["spec"]["resourceClaims"][int(index)]
        name = entry.get("resourceClaimTemplateName")
        claims = tuple(claim for claim in claims if claim.template == name)
    request = _REQUEST.search(f"{finding.path} {finding.message}")
    number = int(request["index"]) if request and len(claims) == 1 else None
    return {
        use.container
        for claim in claims
        for use in claim.uses
        if number is None or use.request in {"", _name(claim, number)}
    }


def _name(claim: Claim, number: int) -> str:
    name: str = claim.spec["spec"]["devices"]["requests"][number]["name"]
    return name


def _limits(before: Any, after: Any) -> Iterator[tuple[str, str]]:
    """Yield each container that lost keys, and the path of its limits, or of the only one."""
    for field in CONTAINER_FIELDS:
        pairs = zip(_listed(before, field), _listed(after, field), strict=True)
        for index, (one, other) in enumerate(pairs):
            lost = [key for key in _amounts(one) if key not in _amounts(other)]
            if lost:
                key = f"[{lost[0]}]" if len(lost) == 1 else ""
                yield one["name"], f"spec.{field}[{index}].resources.limits{key}"


def _listed(pod: Any, field: str) -> list[dict[str, Any]]:
    _, found = reached(pod, ("spec", field))
    return found or []


def _amounts(container: Mapping[str, Any]) -> Mapping[str, Any]:
    _, found = reached(container, ("resources", "limits"))
    return found or {}
