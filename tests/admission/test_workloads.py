"""The findings about a workload when somebody applies it: those that its pods would meet."""

from typing import Any, Final, NamedTuple

import msgspec
import pytest

from admission.objects import merge_answers
from admission.pods import UNTOUCHED, Answer, Decision, admit_created
from admission.review import decode_workloads
from admission.workloads import validate_workload
from findings.field_path import FieldPath
from findings.finding import Code, error, warning
from findings.transient_causes import TRANSIENT_CAUSES
from kube.api.admission import AdmissionRequest, GroupVersionKind
from kube.api.urls import WORKLOADS
from kube.api.workloads import VALIDATED_KINDS
from kube.names import REQUEST_ANNOTATION, TRANSLATE_LABEL
from quotas.resource_quotas.scopes import Quota
from testing.builders import (
    HAMI,
    NAMESPACE,
    NVIDIA,
    admit,
    container,
    driver_slice,
    finding_codes,
    finding_texts,
    gpus,
    hami_gpu,
    nvidia_gpu,
    pod,
    pod_view,
    translation_snapshot,
    with_changes,
    with_record,
    workload,
)
from testing.documents import Document
from translation.cluster.snapshot import (
    ClaimUnawareComponent,
    QuotaPolicy,
    TemplateSummary,
    TranslationOptions,
    TranslationSnapshot,
)

KINDS: Final = [kind for _, kind in VALIDATED_KINDS]
LIMITS: Final = "containers[0].resources.limits"
GPU: Final = f"{LIMITS}[nvidia.com/gpu]"
MEM: Final = f"{LIMITS}[nvidia.com/gpumem]"
PERCENT: Final = f"{LIMITS}[nvidia.com/gpumem-percentage]"
IMPLICIT: Final = f"deviceclass.resource.kubernetes.io/{HAMI}"
TEMPLATE: Final = "spec.template.spec"
SOME: Final = translation_snapshot(
    driver_slice(HAMI, hami_gpu()), driver_slice(NVIDIA, nvidia_gpu())
)
SHARE: Final = pod(gpus(1, mem=1000))
BYTES: Final = pod(gpus(1, mem="8Gi"))
"""A mistake that the API server lets pass."""
CONTROLLED: Final = {
    "ownerReferences": [{"apiVersion": "v1", "kind": "Any", "name": "a", "controller": True}]
}
OWNED: Final = {"ownerReferences": [{"apiVersion": "v1", "kind": "Any", "name": "a"}]}


def review_workload(
    document: Document,
    old: Document | None = None,
    snapshot: TranslationSnapshot = SOME,
    options: TranslationOptions | None = None,
) -> Answer:
    """The answer to a workload, new or updated."""
    group, _, version = document["apiVersion"].partition("/")
    kind = GroupVersionKind(group=group, version=version, kind=document["kind"])
    admission_request = AdmissionRequest(uid="u", kind=kind)
    findings, before = (
        decode_workloads(admission_request, msgspec.Raw(msgspec.json.encode(entry)))[0]
        if entry
        else None
        for entry in (document, old)
    )
    assert findings is not None
    return validate_workload(
        findings,
        before,
        namespace=NAMESPACE,
        snapshot=snapshot,
        options=options or TranslationOptions(),
    )


def test_every_kind_of_workload_is_validated() -> None:
    assert {(entry.group, entry.version, entry.plural) for entry in WORKLOADS} == {
        (*api_version.split("/"), plural) for (api_version, _), plural in VALIDATED_KINDS.items()
    }


# --- what is said ---------------------------------------------------------------------------------


class Case(NamedTuple):
    name: str
    pod: Document
    decision: Decision
    want: tuple[str, ...] = ()
    snapshot: TranslationSnapshot = SOME


def quota(*hard: str) -> TranslationSnapshot:
    return translation_snapshot(
        driver_slice(HAMI, hami_gpu()), quotas={NAMESPACE: {"gpus": Quota(names=frozenset(hard))}}
    )


def listed(*names: str) -> TranslationSnapshot:
    return translation_snapshot(driver_slice(HAMI, hami_gpu()), classes=frozenset(names))


CASES: Final = (
    Case("pods without devices", pod(), Decision.UNTOUCHED),
    Case("pods that become DRA pods", SHARE, Decision.VALIDATED),
    Case(
        "pods that lose something",
        pod(gpus(1, mem=1000), annotations={"hami.io/gpu-scheduler-policy": "binpack"}),
        Decision.VALIDATED,
        ("warning policyDropped spec.template.metadata.annotations[hami.io/gpu-scheduler-policy]",),
    ),
    Case(
        "keys that are not translated",
        pod(container("main", {"nvidia.com/gpu": 1, "furiosa.ai/rngd": 1})),
        Decision.VALIDATED,
        (f"info untranslatedDeviceKey {TEMPLATE}.{LIMITS}[furiosa.ai/rngd]",),
    ),
    Case("a wrong unit", BYTES, Decision.REFUSED, (f"error wrongUnit {TEMPLATE}.{MEM}",)),
    Case(
        "two mistakes are both told",
        pod(gpus(1, mem="8Gi", pct=101)),
        Decision.REFUSED,
        (f"error wrongUnit {TEMPLATE}.{MEM}", f"error outOfRange {TEMPLATE}.{PERCENT}"),
    ),
    Case(
        "an unknown MIG profile",
        pod(gpus(mig_1g_5gbx=1)),
        Decision.REFUSED,
        (f"error unknownMigProfile {TEMPLATE}.{LIMITS}[nvidia.com/mig-1g.5gbx]",),
    ),
    Case(
        "a share in a privileged container",
        pod(gpus(1, mem=1000, fields={"securityContext": {"privileged": True}})),
        Decision.REFUSED,
        (f"error privilegedShare {TEMPLATE}.containers[0].securityContext.privileged",),
    ),
    Case(
        "an annotation of the pods",
        pod(gpus(1, mem=1000), annotations={"nvidia.com/vgpu-mode": "mug"}),
        Decision.REFUSED,
        ("error unknownMode spec.template.metadata.annotations[nvidia.com/vgpu-mode]",),
    ),
    Case(
        "a scheduler that may not understand claims",
        pod(gpus(1), schedulerName="volcano"),
        Decision.UNTOUCHED,
        (f"warning foreignScheduler {TEMPLATE}.schedulerName",),
    ),
    Case(
        "pods that opt out",
        pod(*BYTES["spec"]["containers"], labels={TRANSLATE_LABEL: "false"}),
        Decision.UNTOUCHED,
        ("info optedOut spec.template.metadata.labels",),
    ),
    # What is so now, and may not be when the pods come.
    Case(
        "a percentage of sizes that nobody published yet",
        pod(gpus(pct=50)),
        Decision.VALIDATED,
        (f"warning memorySizesUnknown {TEMPLATE}.{PERCENT}",),
        translation_snapshot(),
    ),
    Case(
        "replicas that the driver does not publish now",
        pod(gpus(shared=1)),
        Decision.VALIDATED,
        (f"warning unsupportedAsPublished {TEMPLATE}.{LIMITS}[nvidia.com/gpu.shared]",),
    ),
    Case(
        "a quota that would stop counting",
        pod(gpus(1)),
        Decision.VALIDATED,
        (f"warning quotaNotCounted {TEMPLATE}.{GPU}",),
        quota("requests.nvidia.com/gpu"),
    ),
    Case(
        "the implicit name of a class, which the quota does not count",
        pod(container(resources={"limits": {IMPLICIT: "1"}})),
        Decision.VALIDATED,
        (f"warning quotaNotCounted {TEMPLATE}.{LIMITS}[{IMPLICIT}]",),
        quota("requests.nvidia.com/gpu"),
    ),
    Case(
        "a class that is not there yet",
        pod(gpus(1)),
        Decision.VALIDATED,
        (f"warning deviceClassMissing {TEMPLATE}.resourceClaims",),
        listed(),
    ),
    Case(
        "what may pass beside what does not",
        pod(gpus(1, mem="8Gi")),
        Decision.REFUSED,
        (f"error wrongUnit {TEMPLATE}.{MEM}", f"warning quotaNotCounted {TEMPLATE}.{GPU}"),
        quota("requests.nvidia.com/gpu"),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_validated(case: Case) -> None:
    answer = review_workload(workload(case.pod), snapshot=case.snapshot)

    assert (case.decision, case.want) == (answer.decision, tuple(finding_texts(answer.findings)))
    assert answer.operations == ()


@pytest.mark.parametrize("kind", KINDS)
def test_a_finding_says_where_in_each_kind_the_mistake_is(kind: str) -> None:
    answer = review_workload(workload(BYTES, kind))

    (finding,) = answer.findings
    above = "spec.jobTemplate.spec" if kind == "CronJob" else "spec"
    assert str(finding.path) == f"{above}.template.spec.{MEM}"


def test_a_template_of_our_name_with_other_content_may_be_gone_in_time() -> None:
    (claim,) = review_workload(workload(pod(gpus(1)))).claims
    snapshot = msgspec.structs.replace(
        SOME, templates={(NAMESPACE, claim.template): TemplateSummary(digest="other")}
    )

    answer = review_workload(workload(pod(gpus(1))), snapshot=snapshot)

    assert (Decision.VALIDATED, ["warning templateConflict"]) == (
        answer.decision,
        finding_codes(answer.findings),
    )
    assert answer.findings[0].message.startswith(
        "pods would be rejected now: ResourceClaimTemplate"
    )


def test_an_operator_s_warning_stays_as_it_is() -> None:
    snapshot, options = quota("requests.nvidia.com/gpu"), TranslationOptions(quota=QuotaPolicy.WARN)

    (finding,) = review_workload(
        workload(pod(gpus(1))), snapshot=snapshot, options=options
    ).findings

    assert finding.message.startswith("ResourceQuota gpus counts")


def test_what_may_pass_says_how() -> None:
    assert all(TRANSIENT_CAUSES.values())
    assert Code.WRONG_UNIT not in TRANSIENT_CAUSES


# --- who is asked ---------------------------------------------------------------------------------


def test_what_a_controller_made_is_never_denied() -> None:
    assert review_workload(workload(BYTES, "ReplicaSet", **CONTROLLED)) == UNTOUCHED


def test_an_owner_that_is_no_controller_does_not_save_it() -> None:
    assert not review_workload(workload(BYTES, "Job", **OWNED)).allowed


@pytest.mark.parametrize("kind", KINDS)
def test_an_update_of_anything_but_the_template_is_never_denied(kind: str) -> None:
    old = workload(BYTES, kind)

    new = with_changes(old, metadata__labels={"a": "b"}, spec__replicas=3)

    assert review_workload(new, old) == UNTOUCHED


def test_an_update_of_the_template_is_validated() -> None:
    old = workload(BYTES)

    assert not review_workload(with_changes(old, spec__template__spec__priority=1), old).allowed
    assert review_workload(workload(pod(gpus(1, mem=8192))), old).decision is Decision.VALIDATED


# --- templates that were translated before --------------------------------------------------------


def test_what_drawbridge_translate_printed_passes() -> None:
    printed, _ = admit(SHARE, SOME)

    answer = review_workload(workload(printed))

    assert (Decision.VALIDATED, ()) == (answer.decision, answer.findings)
    assert answer.claims


def forged(text: str) -> Document:
    printed, _ = admit(SHARE, SOME)
    return with_record(printed, text)


AT: Final = f"spec.template.metadata.annotations[{REQUEST_ANNOTATION}]"


def test_text_that_the_webhook_did_not_write_is_denied() -> None:
    answer = review_workload(workload(forged("{}")))

    assert (Decision.REFUSED, [f"error translationRecordMalformed {AT}"]) == (
        answer.decision,
        finding_texts(answer.findings),
    )


def test_an_annotation_for_more_than_the_pods_use_is_denied() -> None:
    translated_pod, _ = admit(pod(gpus(2, mem=1000)), SOME)

    answer = review_workload(
        workload(forged(translated_pod["metadata"]["annotations"][REQUEST_ANNOTATION]))
    )

    assert (Decision.REFUSED, [f"error translationRecordForged {AT}"]) == (
        answer.decision,
        finding_texts(answer.findings),
    )


def test_an_annotation_of_another_profile_may_be_right_when_the_pods_come() -> None:
    printed, _ = admit(SHARE, SOME)
    text = printed["metadata"]["annotations"][REQUEST_ANNOTATION]
    request: Any = msgspec.json.decode(text)
    request["profiles"][0]["hash"] = "0" * len(request["profiles"][0]["hash"])

    answer = review_workload(workload(forged(msgspec.json.encode(request).decode())))

    assert (Decision.VALIDATED, [f"warning profileChanged {AT}"]) == (
        answer.decision,
        finding_texts(answer.findings),
    )


# --- claim-unaware components ---------------------------------------------------------------------


class ComponentCase(NamedTuple):
    name: str
    claim_unaware_components: dict[ClaimUnawareComponent, frozenset[str]]
    want: tuple[str, ...]
    pod: Document = SHARE
    options: TranslationOptions = TranslationOptions()


NONE: Final[frozenset[str]] = frozenset()
ADD: Final = "Kueue does not count these claims; add to its deviceClassMappings: "
MAPPING: Final = f"{{name: nvidia.com/gpu, deviceClassNames: [{HAMI}]}}"
UNMAPPED: Final = "; from 0.18 on it never admits pods with claims of other classes"
WHOLE: Final = "; it counts a share as a whole device, unless the mapping has sources with capacity (0.19, alpha)"
AUTOSCALER: Final = (
    "the cluster autoscaler adds no node for claims, unless it is 1.35 or later, or runs with "
    "--enable-dynamic-resource-allocation"
)
KARPENTER: Final = (
    "Karpenter adds no node for claims, unless IGNORE_DRA_REQUESTS is false (1.14: true by default)"
)
ALL_SEE: Final = TranslationOptions(claim_aware_components=frozenset(ClaimUnawareComponent))

COMPONENT_CASES: Final = (
    ComponentCase("nobody looks", {}, ()),
    ComponentCase(
        "Kueue, with the mapping to add",
        {ClaimUnawareComponent.KUEUE: NONE},
        (f"{ADD}{MAPPING}{UNMAPPED}{WHOLE}",),
    ),
    ComponentCase(
        "Kueue that has the mapping", {ClaimUnawareComponent.KUEUE: frozenset({HAMI})}, ()
    ),
    ComponentCase(
        "Kueue that has one mapping of two",
        {ClaimUnawareComponent.KUEUE: frozenset({HAMI})},
        (f"{ADD}{{name: nvidia.com/gpu, deviceClassNames: [mig.nvidia.com]}}{UNMAPPED}{WHOLE}",),
        pod(gpus(1, mem=1000, mig_1g_5gb=1)),
    ),
    ComponentCase(
        "the cluster autoscaler",
        {ClaimUnawareComponent.CLUSTER_AUTOSCALER: NONE},
        (AUTOSCALER,),
    ),
    ComponentCase(
        "Karpenter",
        {ClaimUnawareComponent.KARPENTER: NONE},
        (KARPENTER,),
    ),
    ComponentCase(
        "all of them, known to see", dict.fromkeys(ClaimUnawareComponent, NONE), (), options=ALL_SEE
    ),
    ComponentCase("pods without devices", dict.fromkeys(ClaimUnawareComponent, NONE), (), pod()),
    ComponentCase(
        "pods that are left alone",
        dict.fromkeys(ClaimUnawareComponent, NONE),
        (),
        pod(gpus(1), labels={TRANSLATE_LABEL: "false"}),
    ),
)


@pytest.mark.parametrize("case", COMPONENT_CASES, ids=lambda case: case.name)
def test_components_that_see_no_claims_are_reported(case: ComponentCase) -> None:
    snapshot = msgspec.structs.replace(SOME, claim_unaware_components=case.claim_unaware_components)

    answer = review_workload(workload(case.pod), snapshot=snapshot, options=case.options)

    findings = [
        finding for finding in answer.findings if finding.code is Code.CLAIM_UNAWARE_COMPONENT
    ]
    assert case.want == tuple(entry.message for entry in findings)
    assert {f"{TEMPLATE}.resourceClaims"} >= {str(entry.path) for entry in findings}
    assert answer.allowed


@pytest.mark.parametrize("component", sorted(ClaimUnawareComponent))
def test_autoscalers_add_no_node_to_an_empty_group(component: ClaimUnawareComponent) -> None:
    snapshot = msgspec.structs.replace(SOME, claim_unaware_components={component: NONE})

    codes = [
        finding.code for finding in review_workload(workload(SHARE), snapshot=snapshot).findings
    ]

    assert (Code.NO_SCALE_FROM_ZERO in codes) is (component is not ClaimUnawareComponent.KUEUE)


def test_kueue_counts_the_template_of_a_job() -> None:
    snapshot = msgspec.structs.replace(
        SOME, claim_unaware_components={ClaimUnawareComponent.KUEUE: frozenset({HAMI})}
    )

    (finding,) = review_workload(workload(SHARE, "Job"), snapshot=snapshot).findings

    assert "Kueue counts nvidia.com/gpu in the template of a Job" in finding.message
    assert finding.fix == "keep nvidia.com/gpu among the resources of its ClusterQueue"


def test_the_mapping_is_named_after_a_key_that_was_there_once() -> None:
    printed, _ = admit(SHARE, SOME)
    snapshot = msgspec.structs.replace(
        SOME, claim_unaware_components={ClaimUnawareComponent.KUEUE: NONE}
    )

    (finding,) = review_workload(workload(printed), snapshot=snapshot).findings

    assert MAPPING in finding.message


WARNED = Answer(
    decision=Decision.VALIDATED,
    findings=(warning(Code.NOT_EVALUATED, FieldPath.of("spec"), "busy"),),
)
DENIED = Answer(
    decision=Decision.REFUSED,
    findings=(error(Code.EXCEEDS_LARGEST_NODE, FieldPath.of("spec"), "no"),),
)


@pytest.mark.parametrize(
    ("expected", "first", "other"),
    [
        (Decision.UNTOUCHED, UNTOUCHED, UNTOUCHED),
        (Decision.VALIDATED, UNTOUCHED, WARNED),
        (Decision.VALIDATED, WARNED, UNTOUCHED),
        (Decision.REFUSED, WARNED, DENIED),
        (Decision.REFUSED, DENIED, WARNED),
    ],
)
def test_two_answers_together_say_what_both_say(
    expected: Decision, first: Answer, other: Answer
) -> None:
    merged_answer = merge_answers(first, other)

    assert merged_answer.decision is expected
    assert merged_answer.findings == (*first.findings, *other.findings)


def test_a_fix_names_the_annotations_of_the_pod_template() -> None:
    limits = {"huawei.com/Ascend310P": 1, "huawei.com/Ascend310P-core": 40}

    answer = review_workload(workload(pod(container("main", limits))))

    (fix,) = [finding.fix for finding in answer.findings if finding.is_error]
    assert fix == (
        "add huawei.com/vnpu-mode: hami-core to spec.template.metadata.annotations; or remove the key: the "
        "container then gets a whole NPU"
    )


def test_an_amount_of_a_template_is_named_in_limits_and_requests() -> None:
    """Of a pod nobody knows: the API server gives it the requests of its limits before it asks."""
    template = pod(gpus(1, mem="8Gi"))

    answer = review_workload(workload(template))
    of_pod = admit_created(
        template,
        pod_view(template),
        namespace=NAMESPACE,
        snapshot=SOME,
        options=TranslationOptions(),
    )

    assert ["write 8192 for 8Gi; write the same in requests", "write 8192 for 8Gi"] == [
        finding.fix for finding in (*answer.findings, *of_pod.findings) if finding.is_error
    ]


def test_an_annotation_of_the_workload_alone_is_told() -> None:
    mode = {"nvidia.com/vgpu-mode": "hami-core", "team": "a"}

    answer = review_workload(workload(SHARE, annotations=mode))
    on_both = review_workload(workload(pod(gpus(1, mem=1000), annotations=mode), annotations=mode))
    of_no_devices = review_workload(workload(pod(container("main", {})), annotations=mode))

    (told,) = answer.findings
    assert ["warning untranslatedDeviceKey metadata.annotations[nvidia.com/vgpu-mode]"] == (
        finding_texts([told])
    )
    assert told.advice == (
        "nvidia.com/vgpu-mode is on the Deployment, not on its pods, so it has no effect; move it to "
        "spec.template.metadata.annotations"
    )
    assert () == on_both.findings == of_no_devices.findings


def test_a_kind_that_copies_its_annotations_to_its_pods_is_not_told() -> None:
    document = workload(SHARE, annotations={"nvidia.com/vgpu-mode": "hami-core"})
    service = {
        **document,
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "spec": {"predictor": document["spec"]["template"]["spec"]},
    }

    assert "untranslatedDeviceKey" not in " ".join(finding_codes(review_workload(service).findings))
