"""Entries of pods beside the claims of their PodGroup: the same in all fields, or a claim of their own."""

from typing import Any

import pytest

from allocator.declarations.group_claims import check_group_claims
from allocator.declarations.pod_group import PodGroup
from kube.api.core import Pod
from kube.api.meta import convert


def template(name: str, source: str) -> dict[str, str]:
    return {"name": name, "resourceClaimTemplateName": source}


def claim(name: str, source: str) -> dict[str, str]:
    return {"name": name, "resourceClaimName": source}


@pytest.mark.parametrize(
    ("words", "entry"),
    [
        ("", template("link", "fabric")),
        ("", template("gpus", "two-gpus")),
        ('"link" of template "other" is not "link" of template "fabric" of PodGroup training',
         template("link", "other")),
        ('"link" of claim "fabric" is not "link" of template "fabric"', claim("link", "fabric")),
        ('"net" of template "fabric" is not "link" of template "fabric"', template("net", "fabric")),
        ('"x" of claim "shared" is not "disk" of claim "shared"', claim("x", "shared")),
    ],
)  # fmt: skip
def test_an_entry_is_one_of_the_group_or_resembles_none(words: str, entry: dict[str, Any]) -> None:
    spec = {"resourceClaims": [template("link", "fabric"), claim("disk", "shared")]}
    group = convert({"metadata": {"name": "training"}, "spec": spec}, PodGroup)
    pod = convert({"spec": {"resourceClaims": [template("own", "own"), entry]}}, Pod)

    findings = list(check_group_claims(pod, group))

    assert [str(finding.path) for finding in findings] == (
        ["spec.resourceClaims[1]"] if words else []
    )
    assert all(words in finding.message for finding in findings)
