"""The envelope: the bodies that are reviews, and the form of an answer on the wire."""

import base64
from typing import Any, NamedTuple

import jsonpatch
import msgspec
import pytest

from admission.pods import Answer, Decision
from admission.review import (
    MAX_CAUSES,
    MAX_PARTS,
    MAX_WARNING_LENGTH,
    MAX_WARNINGS,
    ReviewError,
    decode_pod_document,
    decode_review,
    encode_answer,
    view_pod,
)
from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, info, warning
from kube.api.admission import AdmissionRequest, GroupVersionKind, UserInfo
from testing.builders import admit, gpus, pod
from testing.documents import Document

ASKED = AdmissionRequest(uid="u-1", kind=GroupVersionKind(version="v1", kind="Pod"), name="train")


def body(**request: Any) -> bytes:
    review = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {"uid": "u-1", "resource": {"version": "v1", "resource": "pods"}} | request,
    }
    return msgspec.json.encode(review)


def answered(
    answer: Answer, answered_request: AdmissionRequest = ASKED, codes: str = ""
) -> Document:
    review: Document = msgspec.json.decode(encode_answer(answered_request, answer, codes))
    assert (review["apiVersion"], review["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response: Document = review["response"]
    return response


# --- in -------------------------------------------------------------------------------------------


def test_a_review_of_a_pod() -> None:
    review = decode_review(
        body(operation="CREATE", namespace="a", object=pod(gpus(1)), dryRun=True)
    )

    document = decode_pod_document(review, review.object)
    pod_view = view_pod(document)
    assert (
        review.uid,
        review.operation,
        review.namespace,
        review.dry_run,
    ) == ("u-1", "CREATE", "a", True)
    assert (pod(gpus(1)), "train") == (document, pod_view.metadata.name)


class Refusal(NamedTuple):
    name: str
    body: bytes
    want: str


REFUSALS = (
    Refusal("nothing", b"", "the body is not an AdmissionReview"),
    Refusal("no JSON", b"{", "the body is not an AdmissionReview"),
    Refusal("no UTF-8", b'"\xff"', "the body is not an AdmissionReview"),
    Refusal("very deep", b"[" * 100_000, "the body is not an AdmissionReview"),
    Refusal(
        "deep in the object",
        body().replace(b'"uid"', b'"object":' + b"[" * 50_000 + b',"uid"'),
        "the body is not an AdmissionReview",
    ),
    Refusal("brackets without end", b"[{}" + b",{}" * MAX_PARTS + b"]", "not an AdmissionReview"),
    Refusal("another version", body().replace(b"io/v1", b"io/v1beta1"), "want admission.k8s.io/v1"),
    Refusal("another kind", body().replace(b"AdmissionReview", b"Pod"), "want admission.k8s.io/v1"),
    Refusal(
        "an answer",
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}',
        "with a request",
    ),
    Refusal("no uid", body().replace(b'"uid"', b'"uuid"'), "the body is not an AdmissionReview"),
    Refusal("another resource", body(resource={"resource": "jobs"}), "want a review of pods"),
    Refusal("an operation that is none", body(operation="MINT"), "want one of the operations"),
)


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refused(case: Refusal) -> None:
    with pytest.raises(ReviewError) as caught:
        decode_review(case.body)

    assert case.want in str(caught.value)


BROKEN_PODS = (
    ("no object, as at DELETE", b"null"),
    ("a list", b"[]"),
    ("containers that are a text", b'{"spec":{"containers":"a"}}'),
    ("an amount that is none", b'{"spec":{"containers":[{"resources":{"limits":{"a":"x"}}}]}}'),
    ("an amount that is true", b'{"spec":{"containers":[{"resources":{"limits":{"a":true}}}]}}'),
    ("very deep", b'{"a":' * 100_000),
    ("", b""),
)


@pytest.mark.parametrize(("name", "text"), BROKEN_PODS, ids=[name for name, _ in BROKEN_PODS])
def test_broken_pods(name: str, text: bytes) -> None:
    request = decode_review(body(operation="CREATE"))
    with pytest.raises(ReviewError, match="the object under review is not a pod"):
        view_pod(decode_pod_document(request, msgspec.Raw(text)))


# --- out ------------------------------------------------------------------------------------------


def test_a_pod_that_stays_as_it_is() -> None:
    assert answered(Answer(decision=Decision.UNTOUCHED)) == {
        "uid": "u-1",
        "allowed": True,
        "auditAnnotations": {"decision": "untouched"},
    }


def test_a_patch_says_what_it_is_and_applies() -> None:
    before = pod(gpus(1))
    after, answer = admit(before)

    response = answered(answer)

    assert response["patchType"] == "JSONPatch"
    patch = jsonpatch.JsonPatch(msgspec.json.decode(base64.b64decode(response["patch"])))
    assert after == patch.apply(before)


def refused(*findings: Finding) -> Document:
    return answered(Answer(decision=Decision.REFUSED, findings=findings))


def test_every_fault_is_a_cause() -> None:
    response = refused(
        error(Code.NEGATIVE, FieldPath.of("spec", "a"), "too small", "write more"),
        warning(Code.CLAMPED, FieldPath.of("spec", "b"), "told elsewhere"),
        error(Code.NOT_AN_INTEGER, FieldPath.of("spec", "c"), "broken"),
    )

    assert (
        response["allowed"],
        response["status"]["code"],
        response["status"]["reason"],
    ) == (False, 422, "Invalid")
    assert (
        response["status"]["message"]
        == "Pod rejected:\n* spec.a: drawbridge[negative]: too small; write more"
        "\n* spec.c: drawbridge[notAnInteger]: broken"
    )
    assert response["status"]["details"] == {
        "name": "train",
        "kind": "Pod",
        "causes": [
            {
                "reason": "FieldValueInvalid",
                "message": "drawbridge[negative]: too small; write more",
                "field": "spec.a",
            },
            {
                "reason": "FieldValueInvalid",
                "message": "drawbridge[notAnInteger]: broken",
                "field": "spec.c",
            },
        ],
    }


def test_a_denial_leads_to_each_code_on_the_site_once() -> None:
    path = FieldPath.of("spec", "a")
    faults = (
        because(error(Code.NEGATIVE, path, "x", "write y"), "1 node: z"),
        error(Code.NEGATIVE, path, "x"),
        error(Code.NOT_AN_INTEGER, path, "x"),
    )
    answer = Answer(decision=Decision.REFUSED, findings=faults)

    causes = answered(answer, codes="https://docs/codes.html")["status"]["details"]["causes"]

    assert [cause["message"] for cause in causes] == [
        "drawbridge[negative]: x; write y (1 node: z) (https://docs/codes.html#negative)",
        "drawbridge[negative]: x",
        "drawbridge[notAnInteger]: x (https://docs/codes.html#notaninteger)",
    ]


def test_a_single_fault_is_reported_on_one_line() -> None:
    response = refused(error(Code.NEGATIVE, FieldPath.of("spec", "a"), "too small", "write more"))

    assert response["status"]["message"] == (
        "Pod rejected: spec.a: drawbridge[negative]: too small; write more"
    )


def test_a_kind_that_is_none_is_reported_without_control_characters() -> None:
    fault = error(Code.NEGATIVE, FieldPath.of("spec", "a"), "below zero")
    odd = AdmissionRequest(uid="u-1", kind=GroupVersionKind(kind="\x1b[2J" + "x" * 500))

    status = answered(Answer(decision=Decision.REFUSED, findings=(fault,)), odd)["status"]

    assert status["message"].startswith(r"\x1b[2Jxxx")
    assert len(status["message"]) < 150


def test_too_many_faults_are_counted() -> None:
    response = refused(
        *(error(Code.NEGATIVE, FieldPath.of("spec", f"a{n}"), "x") for n in range(MAX_CAUSES + 5))
    )

    assert len(response["status"]["details"]["causes"]) == MAX_CAUSES
    assert response["status"]["message"].endswith("\n* and 5 more")


def because(finding: Finding, *reasons: str) -> Finding:
    return msgspec.structs.replace(finding, reasons=reasons)


class Warned(NamedTuple):
    name: str
    findings: tuple[Finding, ...]
    want: list[str]
    username: str = "alice"
    kind: GroupVersionKind = GroupVersionKind(version="v1", kind="Pod")


def lossy(path: FieldPath, message: str) -> Finding:
    return warning(Code.CLAMPED, path, message)


A, B = FieldPath.of("a"), FieldPath.of("b")
ENVIRONMENT = FieldPath.of("spec", "containers", 0, "env")


WARNED = (
    Warned(
        "one line per lossy step",
        (lossy(A, "x"), lossy(B, "y")),
        ["drawbridge[clamped]: a: x", "drawbridge[clamped]: b: y"],
    ),
    Warned(
        "what is only worth knowing is not told",
        (info(Code.GPU_DISCOVERY_NODE_LABEL, FieldPath.of("a"), "x"),),
        [],
    ),
    Warned(
        "one warning about keys that are not translated",
        tuple(info(Code.UNTRANSLATED_DEVICE_KEY, path, "x", "y") for path in (A, B)),
        ["drawbridge[untranslatedDeviceKey]: a: x; y"],
    ),
    Warned(
        "one line for what is said twice",
        (lossy(A, "x"), lossy(A, "x")),
        ["drawbridge[clamped]: a: x"],
    ),
    Warned(
        "the fix follows the message",
        (warning(Code.CLAMPED, FieldPath.of("a"), "x", "write y"),),
        ["drawbridge[clamped]: a: x; write y"],
    ),
    Warned(
        "a fix that the API server would cut off is a warning of its own",
        (warning(Code.CLAMPED, FieldPath.of("a"), "x" * 230, "write y"),),
        [f"drawbridge[clamped]: a: {'x' * 230}", "drawbridge[clamped]: fix: write y"],
    ),
    Warned(
        "the reasons follow the fix",
        (because(warning(Code.CLAMPED, FieldPath.of("a"), "x", "write y"), "1 node: z"),),
        ["drawbridge[clamped]: a: x; write y (1 node: z)"],
    ),
    Warned(
        "reasons that the API server would cut off are a warning of their own",
        (because(warning(Code.CLAMPED, FieldPath.of("a"), "x", "write y"), "z" * 200, "w" * 20),),
        ["drawbridge[clamped]: a: x; write y", f"drawbridge[clamped]: {'z' * 200}. {'w' * 20}"],
    ),
    Warned(
        "the path starts below the spec",
        (lossy(ENVIRONMENT, "x"),),
        ["drawbridge[clamped]: containers[0].env: x"],
    ),
    Warned(
        "the path of a workload starts below the spec of its pods",
        (lossy(FieldPath.of("spec", "template").join(ENVIRONMENT), "x"),),
        ["drawbridge[clamped]: containers[0].env: x"],
        kind=GroupVersionKind(group="apps", version="v1", kind="Deployment"),
    ),
    Warned("no control character", (lossy(A, "x\ny\x00z"),), ["drawbridge[clamped]: a: x y z"]),
    Warned(
        "controllers have no eyes",
        (lossy(A, "x"),),
        [],
        "system:serviceaccount:kube-system:job-controller",
    ),
    Warned(
        "other service accounts may",
        (lossy(A, "x"),),
        ["drawbridge[clamped]: a: x"],
        "system:serviceaccount:team-a:ci",
    ),
)


@pytest.mark.parametrize("case", WARNED, ids=lambda case: case.name)
def test_warnings(case: Warned) -> None:
    admission_request = AdmissionRequest(
        uid="u-1", kind=case.kind, user_info=UserInfo(username=case.username)
    )

    response = answered(
        Answer(decision=Decision.TRANSLATED, findings=case.findings), admission_request
    )

    assert case.want == response.get("warnings", [])


def test_warnings_stay_within_what_the_api_server_passes_on() -> None:
    findings = tuple(lossy(FieldPath.of("spec", f"a{n}"), "é" * 1000) for n in range(100))

    lines = answered(Answer(decision=Decision.TRANSLATED, findings=findings))["warnings"]

    assert len(lines) == MAX_WARNINGS + 1
    assert all(len(line) <= MAX_WARNING_LENGTH for line in lines)
    assert sum(map(len, lines)) <= 4096
    assert lines[-1] == "drawbridge: and 90 more"


def test_many_warnings_are_cut_behind_a_word_and_keep_their_fix() -> None:
    message = "the devices of the node are used by other pods " * 9
    fix = "write 8192 for 8Gi"
    findings = tuple(
        warning(Code.CLAMPED, FieldPath.of("spec", f"a{n}"), message, fix) for n in range(9)
    )

    lines = answered(Answer(decision=Decision.TRANSLATED, findings=findings))["warnings"]
    few = answered(Answer(decision=Decision.TRANSLATED, findings=findings[:4]))["warnings"]

    words = set(message.split())
    assert all(len(line) <= MAX_WARNING_LENGTH for line in lines)
    assert all(line.removesuffix("...").split()[-1] in words for line in lines[::2])
    assert lines[1] == f"drawbridge[clamped]: fix: {fix}"
    assert few[0] == f"drawbridge[clamped]: a0: {message}"
