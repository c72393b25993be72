"""The envelope of a review: an AdmissionReview from bytes, and an answer to bytes.

Source: admission.k8s.io/v1; for what the API server does with answers k8s.io/apiserver,
pkg/admission/plugin/webhook/request (VerifyAdmissionResponse) and webhook/mutating/dispatcher.go.
"""

import re
from base64 import b64encode
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import msgspec

from admission.pods import Answer, Decision
from admission.workloads import Workload
from findings.documentation import code_address
from findings.field_path import FieldPath
from findings.finding import Code, Finding, Severity, warning
from findings.text import printable, quote_text, shorten
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
from kube.api.meta import ObjectHead, ObjectMeta, convert, decode_pruned, encode
from kube.api.own_kinds import VALIDATED_OWN_KINDS
from kube.api.workloads import (
    VALIDATED_KINDS,
    Path,
    pod_path,
    pods_at_a_time,
    resolve_path,
)
from kube.jsonpatch import Operation
from kube.names import NAME
from kube.quantity import Quantity
from rules.engine.engine import VIEWS, Target
from translation.model.amounts import invalid_amount
from translation.pipeline.patch import CONTAINER_FIELDS
from translation.reading.custom_workloads import embedded_pods, workload_kind
from translation.reading.workload_kinds import CUSTOM_RESOURCES, WorkloadKind

MAX_WARNINGS: Final = 10
MAX_WARNING_LENGTH: Final = 250
"""The longest warning, in characters. Above 4096 runes in total, the API server cuts each warning
to 256 runes. Source: k8s.io/apiserver/pkg/server/filters/with_warnings.go, `truncateItemRunes`."""
MAX_WARNINGS_LENGTH: Final = 1900
"""Characters of an answer's warnings that are passed on whole. The pod's other review, other webhooks
and the API server warn in the same reply, and share its 4096 runes."""
SHOWN_ONCE: Final = frozenset({Code.UNTRANSLATED_DEVICE_KEY})
"""Codes of infos of which an answer shows one as a warning."""
RETRY_AFTER_S: Final = 1
"""Seconds after which a client repeats a request that was postponed."""
MAX_CAUSES: Final = 20
MAX_INVALID_AMOUNTS: Final = 16
"""The invalid amounts that a denial names."""
MAX_SHOWN: Final = 200
"""Characters of an invalid amount that a denial repeats."""
MAX_KIND: Final = 63
MAX_PARTS: Final = 100_000
"""Objects and lists in a body, not counting brackets in strings. A pod of 1.5 MiB, the most that etcd
stores, has fewer. A body of nothing else would take more than a second to decode."""
MAX_HEAD_BYTES: Final = 64 * 1024
"""Bytes of a review before its object, at most."""
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
PODS: Final = frozenset({"pods"})
_BUILT_IN: Final = frozenset(VALIDATED_KINDS.values())
WORKLOADS: Final = _BUILT_IN | frozenset(CUSTOM_RESOURCES.values())
DRA_GROUP: Final = "resource.k8s.io"
OBJECTS: Final = frozenset(
    {
        "deviceclasses",
        "resourceclaims",
        "resourceclaimtemplates",
        *(kind.plural for kind in VALIDATED_OWN_KINDS),
    }
)
"""Objects of DRA, and of our own kinds, that people write. ResourceSlices, which drivers write, are validated inside the API
server and by the audit, so that no driver depends on this webhook."""
VALIDATED_RESOURCES: Final = OBJECTS | PODS | _BUILT_IN
"""Objects of DRA, and those that use claims."""
KUBE_SYSTEM_ACCOUNT: Final = "system:serviceaccount:kube-system:"


class ReviewError(ValueError):
    """A body that is not a review for this endpoint."""


class UnreadableObjectError(ReviewError):
    """An unreadable object under review.

    Attributes:
        request: The request, whose answer says so.
    """

    def __init__(self, message: str, request: AdmissionRequest) -> None:
        super().__init__(message)
        self.request = request


class InvalidPodError(ReviewError):
    """A pod with amounts that Kubernetes may accept and Drawbridge does not read.

    Attributes:
        findings: An error for each of them; at least one.
    """

    def __init__(self, message: str, findings: tuple[Finding, ...]) -> None:
        super().__init__(message)
        self.findings = findings


def decode_review(body: bytes, resources: Collection[str] = PODS) -> AdmissionRequest:
    """Decode the request in a body.

    Args:
        resources: The supported resources, as in URLs.

    Raises:
        UnreadableObjectError: The object has more parts than are read.
        ReviewError: The body is not an admission.k8s.io/v1 AdmissionReview about one of them.
    """
    # Nearly every body has fewer bytes.
    has_too_many_parts = (
        len(body) > MAX_PARTS
        and _count_brackets(body) > MAX_PARTS
        and _count_brackets(_STRING.sub(b"", body)) > MAX_PARTS
    )
    try:
        review = decode_pruned(_head(body) if has_too_many_parts else body, AdmissionReview)
    except (msgspec.DecodeError, RecursionError) as fault:
        raise ReviewError(f"the body is not an AdmissionReview: {fault}") from fault
    if (review.api_version, review.kind) != (API_VERSION, KIND) or review.request is None:
        raise ReviewError(f"want {API_VERSION} {KIND} with a request")
    if review.request.resource.resource not in resources:
        raise ReviewError(f"want a review of {', '.join(sorted(resources))}")
    if review.request.operation not in OPERATIONS:
        # It is a label of a metric, so a caller must not choose its value.
        raise ReviewError(f"want one of the operations {', '.join(sorted(OPERATIONS))}")
    if has_too_many_parts:
        message = f"the review has more than {MAX_PARTS} objects and lists"
        raise UnreadableObjectError(message, review.request)
    return review.request


def _count_brackets(text: bytes) -> int:
    return text.count(b"{") + text.count(b"[")


def _head(body: bytes) -> bytes:
    """Return the part of a review before its objects, as JSON."""
    return body[:MAX_HEAD_BYTES].partition(b',"object":')[0] + b"}}"


def decode_pod_document(request: AdmissionRequest, raw: msgspec.Raw) -> dict[str, Any]:
    """Decode the pod in a review, new or old, to a dict.

    Raises:
        UnreadableObjectError: It is no object.
    """
    try:
        return decode_pruned(bytes(raw), dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as fault:
        raise UnreadableObjectError(str(_not_a_pod(fault)), request) from fault


def view_pod(document: Mapping[str, Any]) -> Pod:
    """Return the typed view of a pod.

    Raises:
        InvalidPodError: It has amounts that are no quantities.
        ReviewError: The object is not a pod.
    """
    try:
        return convert(document, Pod)
    except (msgspec.ValidationError, RecursionError) as fault:
        findings = tuple(islice(_check_amounts(document), MAX_INVALID_AMOUNTS))
        if findings:
            raise InvalidPodError(str(_not_a_pod(fault)), findings) from fault
        raise _not_a_pod(fault) from fault


def _not_a_pod(fault: Exception) -> ReviewError:
    return ReviewError(f"the object under review is not a pod: {fault}")


def _check_amounts(document: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield an error for each amount of a container that is no quantity; other faults are ignored."""
    spec = _map(document.get("spec"))
    places = [
        (FieldPath.of("spec", field, index), _map(_map(container).get("resources")))
        for field in CONTAINER_FIELDS
        for index, container in enumerate(_list(spec.get(field)))
    ]
    for path, resources in places:
        for section in ("limits", "requests"):
            for key, value in _map(resources.get(section)).items():
                if not _is_quantity(value):
                    at = path.child("resources", section).key(key)
                    yield invalid_amount(at, value, _value_text(value))


def _value_text(value: object) -> str:
    """Return a value in words; lists and objects may be of any size."""
    match value:
        case str():
            return quote_text(value[:MAX_SHOWN])
        case dict() | list():
            return "an object" if isinstance(value, dict) else "a list"
        case _:
            return msgspec.json.encode(value).decode()[:MAX_SHOWN]


def _is_quantity(value: object) -> bool:
    """Return True if a value is a quantity, as the views of the API have them."""
    try:
        convert(value, Quantity)
    except msgspec.ValidationError:
        return False
    return True


def _map(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def decode_workloads(request: AdmissionRequest, raw: msgspec.Raw) -> tuple[Workload, ...]:
    """Decode the workload in a review, new or old: once for each of its pod templates.

    Raises:
        UnreadableObjectError: The object cannot be read.
        ReviewError: Its kind is none of a workload.
    """
    kind = _api_version(request), request.kind.kind
    path = pod_path(*kind)
    custom = workload_kind(*kind)
    if custom is None and (path is None or kind not in VALIDATED_KINDS):
        raise ReviewError(f"want a workload, not {quote_text(request.kind.kind)}")
    try:
        document = decode_pruned(bytes(raw), dict[str, Any])
        metadata = convert(document, ObjectHead).metadata
        if custom is not None:
            return tuple(_embedded_workloads(custom, document, metadata))
        _, template = resolve_path(document, path or ())
        pod = convert(template, Pod)
        return (
            Workload(
                metadata=metadata,
                path=path or (),
                template=template,
                pod=pod,
                kind_name=kind[1],
                pods=pods_at_a_time(kind[1], document),
            ),
        )
    except (msgspec.DecodeError, RecursionError) as fault:
        message = f"the object under review is not a {kind[1]}: {fault}"
        raise UnreadableObjectError(message, request) from fault


def _embedded_workloads(
    kind: WorkloadKind, document: Mapping[str, Any], metadata: ObjectMeta
) -> Iterator[Workload]:
    for embedded in embedded_pods(kind, document):
        # Schemas of such kinds may let pass what the API server rejects of a pod.
        faults: tuple[Finding, ...] = ()
        try:
            pod = view_pod(embedded.template)
        except InvalidPodError as fault:
            pod, faults = convert({}, Pod), fault.findings
        except ReviewError as fault:
            message = f"{fault}, so it was not validated"
            pod, faults = Pod(), (warning(Code.NOT_EVALUATED, FieldPath(), message),)
        yield Workload(
            metadata=metadata,
            path=embedded.path,
            template=embedded.template,
            pod=pod,
            kind_name=kind.kind,
            kind=kind,
            embedded=embedded,
            pods=embedded.number,
            faults=faults,
        )


def decode_target(request: AdmissionRequest, raw: msgspec.Raw) -> Target:
    """Decode the object in a review for the rules; these validate workloads by their pods.

    Raises:
        UnreadableObjectError: The object cannot be read.
        ReviewError: Objects of this kind are not validated.
    """
    kind = _api_version(request), request.kind.kind
    path = pod_path(*kind)
    view_type = VIEWS.get(kind) if path is None else Pod
    if view_type is None or (path is not None and kind not in VALIDATED_KINDS and kind != _POD):
        raise ReviewError(
            f"want an object of DRA or one that uses claims, not {quote_text(request.kind.kind)}"
        )
    try:
        document = decode_pruned(bytes(raw), dict[str, Any])
        _, parsed_target = resolve_path(document, path or ())
        return Target(
            view=convert(parsed_target, view_type),
            raw=parsed_target,
            path=FieldPath.of(*(path or ())),
            metadata=convert(document, ObjectHead).metadata,
            namespace=request.namespace,
            pods=pods_at_a_time(kind[1], document) if request.operation == "CREATE" else 1,
        )
    except (msgspec.DecodeError, RecursionError) as fault:
        message = f"the object under review is not a {kind[1]}: {fault}"
        raise UnreadableObjectError(message, request) from fault


_POD: Final = ("v1", "Pod")


def _api_version(request: AdmissionRequest) -> str:
    return "/".join(filter(None, (request.kind.group, request.kind.version)))


def encode_answer(request: AdmissionRequest, answer: Answer, codes: str = "") -> bytes:
    """Encode the answer to a request as an AdmissionReview.

    Args:
        codes: The address of the page that explains codes, for a denial; empty where none is published.
    """
    return encode(
        AdmissionReview(
            response=AdmissionResponse(
                uid=request.uid,
                allowed=answer.allowed,
                status=_status(request, answer, codes),
                patch=_encode(answer.operations) if answer.operations else None,
                patch_type="JSONPatch" if answer.operations else None,
                warnings=warnings(request, answer.findings),
                audit_annotations={"decision": answer.decision},
            )
        )
    )


def _encode(operations: Sequence[Operation]) -> str:
    return b64encode(msgspec.json.encode(operations)).decode()


def warnings(request: AdmissionRequest, findings: Sequence[Finding]) -> tuple[str, ...]:
    """Return the admission warnings, within the limits of the API server.

    Controllers in kube-system get none: nobody reads them, and the owner of what they create was
    validated when it was applied.
    """
    if not findings or request.user_info.username.startswith(KUBE_SYSTEM_ACCOUNT):
        return ()
    pod = pod_path(_api_version(request), request.kind.kind)
    untranslated_findings = [finding for finding in findings if finding.code in SHOWN_ONCE]
    shown_findings = [
        *(finding for finding in findings if finding.severity is Severity.WARNING),
        *untranslated_findings[:1],
    ]
    distinct = list(
        dict.fromkeys(
            _line(text) for finding in shown_findings for text in _warning_texts(finding, pod)
        )
    )
    if len(distinct) > MAX_WARNINGS:
        rest = len(distinct) - MAX_WARNINGS
        distinct = [*distinct[:MAX_WARNINGS], f"{NAME}: and {rest} more"]
    if sum(map(len, distinct)) <= MAX_WARNINGS_LENGTH:
        return tuple(distinct)
    return tuple(shorten(line, MAX_WARNING_LENGTH) for line in distinct)


def _warning_texts(finding: Finding, pod: Path | None) -> Iterator[str]:
    """Yield a warning; a fix or reasons that the API server would cut off become a warning of their own.

    Args:
        pod: The fields that lead to the pod or pod template; None where there is none.
    """
    path = finding.path
    if pod is not None:  # The path of a container is long and well known.
        path = path.remove_prefix(FieldPath.of(*pod)).remove_prefix(FieldPath.of("spec"))
    origin = _origin(finding)
    whole = f"{origin}: {path}: {finding.advice}"
    if len(whole) <= MAX_WARNING_LENGTH:
        yield whole
        return
    head = f"{origin}: {path}: {finding.message}"
    with_fix = f"{head}; {finding.fix}"
    if not finding.fix:
        yield head
    elif len(with_fix) <= MAX_WARNING_LENGTH:
        yield with_fix
    else:
        yield head
        yield f"{origin}: fix: {finding.fix}"
    if finding.reasons:
        yield f"{origin}: {'. '.join(finding.reasons)}"


def _origin(finding: Finding) -> str:
    """Return the author and the code of a message, since of a single cause kubectl prints nothing else."""
    return f"{NAME}[{finding.code}]"


def _line(text: str) -> str:
    # The API server drops a warning with a control character.
    return "".join(char if char.isprintable() else " " for char in text)


def _status(request: AdmissionRequest, answer: Answer, codes: str) -> Status | None:
    if answer.allowed:
        return None
    if answer.decision is Decision.POSTPONED:
        return Status(
            code=429,
            reason="TooManyRequests",
            message=f"{answer.reason}; try again",
            details=StatusDetails(retry_after_seconds=RETRY_AFTER_S),
        )
    faults = [finding for finding in answer.findings if finding.is_error]
    causes = tuple(
        StatusCause(reason="FieldValueInvalid", field=str(fault.path), message=message)
        for fault, message in zip(faults, _messages(faults[:MAX_CAUSES], codes), strict=False)
    )
    lines = [f"{cause.field}: {cause.message}" for cause in causes]
    if len(faults) > MAX_CAUSES:
        lines.append(f"and {len(faults) - MAX_CAUSES} more")
    # In a review of a pod the kind is whatever the caller writes.
    kind = printable(request.kind.kind[:MAX_KIND]) or "Pod"
    problem_lines = f" {lines[0]}" if len(lines) == 1 else "".join(f"\n* {line}" for line in lines)
    return Status(
        code=422,
        reason="Invalid",
        message=f"{kind} rejected:{problem_lines}",
        details=StatusDetails(
            name=request.name, group=request.kind.group, kind=request.kind.kind, causes=causes
        ),
    )


def _messages(faults: Iterable[Finding], codes: str) -> Iterator[str]:
    """Yield the messages of faults, each code once with its address on the site, if there is one."""
    linked: set[Code] = set()
    for fault in faults:
        has_link = codes and fault.code not in linked
        linked.add(fault.code)
        link = f" ({code_address(codes, fault.code)})" if has_link else ""
        yield f"{_origin(fault)}: {fault.advice}{link}"
