"""ResourceSlices that the API server accepts and rejects, compared with the rules and the records.

`DRAWBRIDGE_RECORD=1` writes the verdicts to tests/rules/data/slices.json, which unit tests use.
"""

import http.client
import json
import os
from typing import Final

import pytest

from e2e.access import Access
from e2e.older_kubernetes import needs
from testing.slice_cases import (
    GATES,
    SLICES,
    SliceCase,
    Verdict,
    record_verdicts,
    recorded_verdicts,
)

_PATH: Final = "/apis/resource.k8s.io/v1/resourceslices?dryRun=All"
# The records are the verdicts of 1.37 about every field that it has.
pytestmark = needs(37, "compatibilityGroups, skipNodeOperations and limits of slices")

_WITH_GATES: Final = {"feature_gates": dict.fromkeys(GATES, True)}


def _ask(cluster: Access, case: SliceCase) -> Verdict:
    """Create a slice as `kubectl create --dry-run=server` does."""
    code, body = cluster.request("POST", _PATH, case.document)
    if code == http.client.CREATED:
        return Verdict(accepted=True)
    assert code == http.client.UNPROCESSABLE_ENTITY, (case.name, body)
    causes = json.loads(body)["details"].get("causes", [])
    return Verdict(accepted=False, fields=tuple(sorted({cause["field"] for cause in causes})))


def _compare(cluster: Access, *, gated: bool) -> None:
    verdicts = {case.name: _ask(cluster, case) for case in SLICES if case.is_gated is gated}
    if os.environ.get("DRAWBRIDGE_RECORD"):
        record_verdicts(verdicts)
    recorded_verdicts_ = recorded_verdicts()
    assert {name: recorded_verdicts_.get(name) for name in verdicts} == verdicts


def test_the_server_gives_the_recorded_verdicts(cluster: Access) -> None:
    _compare(cluster, gated=False)


@pytest.mark.parametrize("cluster", [_WITH_GATES], indirect=True, ids=["alpha"])
def test_the_server_with_alpha_gates_gives_the_recorded_verdicts(cluster: Access) -> None:
    _compare(cluster, gated=True)
