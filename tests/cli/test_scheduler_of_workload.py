"""The scheduler that a workload of another project names for pods that name none."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from admission.review import decode_workloads
from kube.api.admission import AdmissionRequest, GroupVersionKind
from kube.manifests.dump import dump_yaml
from testing.builders import container, gpus, pod
from testing.command import answer, drawbridge
from testing.documents import api_object

DEVICES: Final = pod(gpus(1, mem=3000))["spec"]
BAD: Final = pod(container("main", {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-cores": 120}))[
    "spec"
]
KEPT: Final = 'not translated: "volcano" may not support claims'
HERE: Final = "spec.schedulerName"
TEMPLATE: Final = "spec.tasks[0].template.spec.schedulerName"


def volcano_job(
    *, job: str | None = None, template: str | None = None, spec: Mapping[str, Any] = DEVICES
) -> dict[str, Any]:
    pod_spec = dict(spec) if template is None else {**spec, "schedulerName": template}
    fields = {} if job is None else {"schedulerName": job}
    tasks = [{"name": "main", "replicas": 1, "template": {"spec": pod_spec}}]
    version = "batch.volcano.sh/v1alpha1"
    return api_object("Job", "train", api_version=version, spec={**fields, "tasks": tasks})


def checked(document: Mapping[str, Any], *options: object) -> tuple[int, list[tuple[str, str]]]:
    """Return the exit code of `check`, and severity and code of each finding."""
    result = drawbridge("check", "-f", "-", "-o", "json", *options, stdin=dump_yaml([document]))
    findings = json.loads(result.stdout)["findings"]
    return result.exit_code, [(finding["severity"], finding["code"]) for finding in findings]


@pytest.mark.parametrize(
    ("document", "path"),
    [
        (volcano_job(job="volcano"), HERE),
        (volcano_job(job="volcano", template=""), HERE),
        (volcano_job(), HERE),
        (volcano_job(job=""), HERE),
        (volcano_job(job="default-scheduler", template="volcano"), TEMPLATE),
        (volcano_job(job="volcano", template="default-scheduler"), None),
        (volcano_job(job="default-scheduler"), None),
    ],
    ids=[
        "of the Job",
        "of the Job, and empty in the template",
        "the default of Volcano",
        "the default of Volcano for an empty name",
        "of the template",
        "another one of the template",
        "another one of the Job",
    ],
)
def test_pods_of_a_volcano_job_have_its_scheduler(
    document: Mapping[str, Any], path: str | None
) -> None:
    answered = answer(document)

    kept = [
        (finding["path"], finding["message"])
        for finding in answered["findings"]
        if finding["code"] == "foreignScheduler"
    ]
    assert kept == ([] if path is None else [(path, KEPT)])
    assert (document in answered["objects"]) == (path is not None)


@pytest.mark.parametrize("place", ["job", "template"])
def test_a_fault_of_keys_that_stay_is_no_error(place: str) -> None:
    document = volcano_job(spec=BAD, **{place: "volcano"})

    exit_code, findings = checked(document)

    assert exit_code == 0
    assert {"warning"} == {severity for severity, _ in findings}
    assert ("warning", "foreignScheduler") in findings


def adopting(tmp_path: Path, target: str) -> Path:
    settings = tmp_path / "settings.yaml"
    settings.write_text(f"translation: {{adoptSchedulers: {{volcano: {target}}}}}")
    return settings


@pytest.mark.parametrize("document", [volcano_job(job="volcano"), volcano_job()])
@pytest.mark.parametrize(
    ("target", "name"), [("default-scheduler", "default-scheduler"), ("volcano", None)]
)
def test_an_adopted_scheduler_is_written_into_the_template(
    document: dict[str, Any], target: str, name: str | None, tmp_path: Path
) -> None:
    settings = ("--settings", adopting(tmp_path, target))
    manifest = dump_yaml([document])

    result = drawbridge("translate", "-f", "-", "-o", "json", *settings, stdin=manifest)

    *templates, after = json.loads(result.stdout)["objects"]
    spec = after["spec"]["tasks"][0]["template"]["spec"]
    assert ["ResourceClaimTemplate"] == [template["kind"] for template in templates]
    assert name == spec.get("schedulerName")
    assert document["spec"].get("schedulerName") == after["spec"].get("schedulerName")


def test_claims_of_a_volcano_job_are_named_at_its_scheduler() -> None:
    uses = {"claims": [{"name": "gpu"}]}
    spec = {
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "one"}],
        "containers": [{"name": "main", "image": "a", "resources": uses}],
    }
    manifest = dump_yaml([volcano_job(job="volcano", spec=spec)])

    result = drawbridge("check", "-f", "-", "-o", "json", stdin=manifest)

    findings = json.loads(result.stdout)["findings"]
    assert [(HERE, "foreignScheduler")] == [
        (finding["path"], finding["code"])
        for finding in findings
        if finding["code"] == "foreignScheduler"
    ]


STEPS: Final = [{"name": "a", "container": BAD["containers"][0]}]
FLOW: Final = {"schedulerName": "volcano", "templates": STEPS}
SERVICE: Final = {"schedulerName": "volcano", "resources": BAD["containers"][0]["resources"]}


@pytest.mark.parametrize(
    ("version", "kind", "spec"),
    [
        ("argoproj.io/v1alpha1", "Workflow", FLOW),
        ("argoproj.io/v1alpha1", "WorkflowTemplate", FLOW),
        ("argoproj.io/v1alpha1", "CronWorkflow", {"workflowSpec": FLOW}),
        ("apps.nvidia.com/v1alpha1", "NIMService", SERVICE),
    ],
    ids=lambda value: value if isinstance(value, str) and "/" not in value else "",
)
def test_other_kinds_with_a_scheduler_of_all_pods(
    version: str, kind: str, spec: Mapping[str, Any]
) -> None:
    document = api_object(kind, "a", api_version=version, spec=spec)

    exit_code, findings = checked(document)

    assert exit_code == 0
    assert ("warning", "foreignScheduler") in findings


def test_a_review_has_the_scheduler_of_the_job() -> None:
    kind = GroupVersionKind(group="batch.volcano.sh", version="v1alpha1", kind="Job")
    request = AdmissionRequest(uid="u", kind=kind)
    document = msgspec.Raw(msgspec.json.encode(volcano_job(job="mine")))

    (workload,) = decode_workloads(request, document)

    assert "mine" == workload.pod.spec.scheduler_name
