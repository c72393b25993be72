"""Reports of policy engines, read by dashboards of several projects: the fields that we write.

Source: openreports/reports-api v0.2, apis/openreports.io/v1alpha1/report_types.go; its predecessor
kubernetes-sigs/wg-policy-prototypes, policy-report/apis/wgpolicyk8s.io/v1alpha2/policyreport_types.go,
which has these fields, too.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from kube.api.meta import ApiStruct, ObjectMeta

OPEN_REPORTS_GROUP: Final = "openreports.io"
OPEN_REPORTS_VERSION: Final = "v1alpha1"
POLICY_REPORTS_GROUP: Final = "wgpolicyk8s.io"
POLICY_REPORTS_VERSION: Final = "v1alpha2"


class Timestamp(ApiStruct, frozen=True, kw_only=True):
    """Source: meta/v1 Timestamp; both fields are required there."""

    seconds: int
    nanos: int


class ReportSubject(ApiStruct, frozen=True, kw_only=True):
    """Source: core/v1 ObjectReference; the namespace of a cluster-scoped object is empty."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class ReportSummary(ApiStruct, frozen=True, kw_only=True):
    """Source: ReportSummary. Zeros are written, since they are columns of `kubectl get`."""

    passed: int = msgspec.field(name="pass")
    fail: int
    warn: int
    error: int
    skip: int


class ReportResult(ApiStruct, frozen=True, kw_only=True):
    """Source: ReportResult; the fields `Subjects` and `Description` have other names in JSON."""

    source: str = ""
    policy: str = ""
    rule: str = ""
    category: str = ""
    severity: str = ""
    timestamp: Timestamp | None = None
    result: str = ""
    scored: bool = False
    resources: tuple[ReportSubject, ...] = ()
    message: str = ""
    properties: Mapping[str, str] | None = None


class PolicyReport(ApiStruct, frozen=True, kw_only=True):
    """Source: Report, ClusterReport, PolicyReport and ClusterPolicyReport; with equal fields."""

    metadata: ObjectMeta = ObjectMeta()
    scope: ReportSubject | None = None
    summary: ReportSummary
    results: tuple[ReportResult, ...] = ()
