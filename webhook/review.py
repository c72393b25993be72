"""The envelope: bytes of an AdmissionReview to a question, an answer to bytes.

Source: admission.k8s.io/v1; for what the API server does with answers k8s.io/apiserver,
pkg/admission/plugin/webhook/request (VerifyAdmissionResponse) and webhook/mutating/dispatcher.go.
"""

from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec

from kube.api.admission import (
    API_VERSION,
    KIND,
    OPERATIONS,
    AdmissionRequest,
    AdmissionResponse,
    AdmissionReview,
    Status,
    StatusCause,
    StatusDetails,
)
from kube.api.core import Pod
from kube.api.meta import ObjectHead, decode, encode, view
from kube.product import NAME
from webhook.admission import Answer
from webhook.findings import Finding, Severity, printable, shown
from webhook.jsonpatch import Operation
from webhook.judgement import Workload
from webhook.rules.judge import VIEWS, Judged
from webhook.workloads import JUDGED, pod_path, reached

MAX_WARNINGS: Final = 10
MAX_WARNING_LENGTH: Final = 250
"""Above 4096 runes in all, the API server cuts each warning to 256 runes."""
MAX_CAUSES: Final = 20
MAX_KIND: Final = 63
MAX_PARTS: Final = 100_000
"""Objects and lists in a body; brackets in its texts count, too. A pod of 1.5 MiB, the most that
etcd stores, has fewer. A body of nothing else would take more than a second to read."""
PODS: Final = frozenset({"pods"})
WORKLOADS: Final = frozenset(JUDGED.values())
DRA_GROUP: Final = "resource.k8s.io"
OBJECTS: Final = frozenset(
    {"deviceclasses", "devicecompatibilitypolicies", "resourceclaims", "resourceclaimtemplates"}
)
"""Objects of DRA that people write. Slices, which drivers write, are judged inside the API server and
by the audit: nothing of ours may come between a driver and its inventory."""
JUDGED_RESOURCES: Final = OBJECTS | PODS | WORKLOADS
"""With what uses claims."""
KUBE_SYSTEM_ACCOUNT: Final = "system:serviceaccount:kube-system:"


class ReviewError(ValueError):
    """A body that is not a review which this endpoint answers; the caller's fault."""


def decode_review(body: bytes, resources: Collection[str] = PODS) -> AdmissionRequest:
    """Return the question that a body holds.

    Args:
        resources: What it may be about, as URLs name it.

    Raises:
        ReviewError: The body is not an admission.k8s.io/v1 AdmissionReview about one of them.
    """
    if body.count(b"{") + body.count(b"[") > MAX_PARTS:
        raise ReviewError(f"the body has more than {MAX_PARTS} objects and lists")
    try:
        review = decode(body, AdmissionReview)
    except (msgspec.DecodeError, RecursionError) as fault:
        raise ReviewError(f"the body is not an AdmissionReview: {fault}") from fault
    if (review.api_version, review.kind) != (API_VERSION, KIND) or review.request is None:
        raise ReviewError(f"want {API_VERSION} {KIND} with a request")
    if review.request.resource.resource not in resources:
        raise ReviewError(f"want a review of {', '.join(sorted(resources))}")
    if review.request.operation not in OPERATIONS:
        # It labels a metric, so a word of the caller's choice would be one more series for ever.
        raise ReviewError(f"want one of the operations {', '.join(sorted(OPERATIONS))}")
    return review.request


def pod_of(raw: msgspec.Raw) -> tuple[Mapping[str, Any], Pod]:
    """Return the pod in a review, as parsed and as a typed view.

    Raises:
        ReviewError: It is no pod.
    """
    try:
        return decode(bytes(raw), dict[str, Any]), decode(bytes(raw), Pod)
    except (msgspec.DecodeError, RecursionError) as fault:
        raise ReviewError(f"the object under review is not a pod: {fault}") from fault


def workload_of(asked: AdmissionRequest, raw: msgspec.Raw) -> Workload:
    """Return the workload in a review, new or old.

    Raises:
        ReviewError: It is none of a kind that is judged.
    """
    version = (asked.kind.group, asked.kind.version)
    kind = "/".join(filter(None, version)), asked.kind.kind
    path = pod_path(*kind)
    if path is None or kind not in JUDGED:
        raise ReviewError(f"want a workload, not {shown(asked.kind.kind)}")
    try:
        document = decode(bytes(raw), dict[str, Any])
        _, template = reached(document, path)
        return Workload(
            metadata=view(document, ObjectHead).metadata,
            path=path,
            template=template,
            pod=view(template, Pod),
        )
    except (msgspec.DecodeError, RecursionError) as fault:
        raise ReviewError(f"the object under review is no {kind[1]}: {fault}") from fault


def judged_of(asked: AdmissionRequest, raw: msgspec.Raw) -> Judged:
    """Return the object in a review as rules judge it: workloads by their pods.

    Raises:
        ReviewError: It is none of a kind that is judged.
    """
    version = "/".join(filter(None, (asked.kind.group, asked.kind.version)))
    kind = version, asked.kind.kind
    path = pod_path(*kind)
    view_type = VIEWS.get(kind) if path is None else Pod
    if view_type is None or (path is not None and kind not in JUDGED and kind != _POD):
        raise ReviewError(f"want an object of DRA or what uses it, not {shown(asked.kind.kind)}")
    try:
        document = decode(bytes(raw), dict[str, Any])
        _, judged = reached(document, path or ())
        return Judged(
            view=view(judged, view_type),
            raw=judged,
            path=".".join(path or ()),
            metadata=view(document, ObjectHead).metadata,
            namespace=asked.namespace,
        )
    except (msgspec.DecodeError, RecursionError) as fault:
        raise ReviewError(f"the object under review is no {kind[1]}: {fault}") from fault


_POD: Final = ("v1", "Pod")


def encode_answer(asked: AdmissionRequest, answer: Answer) -> bytes:
    """Return the AdmissionReview that answers a question."""
    return encode(
        AdmissionReview(
            response=AdmissionResponse(
                uid=asked.uid,
                allowed=answer.allowed,
                status=None if answer.allowed else _status(asked, answer),
                patch=_encoded(answer.operations) if answer.operations else None,
                patch_type="JSONPatch" if answer.operations else None,
                warnings=warnings(asked, answer.findings),
                audit_annotations={"decision": answer.decision.value},
            )
        )
    )


def _encoded(operations: Sequence[Operation]) -> str:
    return b64encode(msgspec.json.encode(operations)).decode()


def warnings(asked: AdmissionRequest, findings: Sequence[Finding]) -> tuple[str, ...]:
    """Return one line per lossy step, within what the API server passes on.

    A controller in kube-system has no eyes: what it makes was judged when a person made its owner.
    """
    if asked.user_info.username.startswith(KUBE_SYSTEM_ACCOUNT):
        return ()
    lines = [
        _line(f"{NAME}: {finding.path}: {finding.message}")
        for finding in findings
        if finding.severity is Severity.WARNING
    ]
    distinct = list(dict.fromkeys(lines))
    if len(distinct) > MAX_WARNINGS:
        rest = len(distinct) - MAX_WARNINGS
        distinct = [*distinct[:MAX_WARNINGS], f"{NAME}: and {rest} more"]
    return tuple(distinct)


def _line(text: str) -> str:
    # A warning with a control character is lost without a word.
    printable = "".join(char if char.isprintable() else " " for char in text)
    if len(printable) <= MAX_WARNING_LENGTH:
        return printable
    return f"{printable[: MAX_WARNING_LENGTH - 3]}..."


def _status(asked: AdmissionRequest, answer: Answer) -> Status:
    faults = [finding for finding in answer.findings if finding.is_error]
    causes = tuple(
        StatusCause(reason="FieldValueInvalid", field=fault.path, message=_advice(fault))
        for fault in faults[:MAX_CAUSES]
    )
    told = [f"{cause.field}: {cause.message}" for cause in causes]
    if len(faults) > MAX_CAUSES:
        told.append(f"and {len(faults) - MAX_CAUSES} more")
    # Of a pod it is whatever the caller writes.
    kind = printable(asked.kind.kind[:MAX_KIND]) or "Pod"
    listed = f" {told[0]}" if len(told) == 1 else "".join(f"\n* {fault}" for fault in told)
    return Status(
        code=422,
        reason="Invalid",
        message=f"{kind} {answer.verdict}:{listed}",
        details=StatusDetails(
            name=asked.name, group=asked.kind.group, kind=asked.kind.kind, causes=causes
        ),
    )


def _advice(fault: Finding) -> str:
    return f"{fault.message}; {fault.fix}" if fault.fix else fault.message
