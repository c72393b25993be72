"""The verdict of `drawbridge check` and `why` on foreign schedulers of pods with claims."""

import json
from pathlib import Path
from typing import Final

import pytest

from kube.names import SCHEDULER_NAME
from testing.command import CLUSTER, drawbridge

TEMPLATE: Final = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}}
---
"""
POD_SPEC: Final = (
    "{schedulerName: volcano, resourceClaims: [{name: gpu, resourceClaimTemplateName: one}], "
    "containers: [{name: main, image: a, resources: {claims: [{name: gpu}]}}]}"
)
POD: Final = f"{TEMPLATE}apiVersion: v1\nkind: Pod\nmetadata: {{name: train}}\nspec: {POD_SPEC}\n"
DEPLOYMENT: Final = f"""{TEMPLATE}apiVersion: apps/v1
kind: Deployment
metadata: {{name: train}}
spec:
  selector: {{matchLabels: {{app: train}}}}
  template: {{metadata: {{labels: {{app: train}}}}, spec: {POD_SPEC}}}
"""
VOLCANO_JOB: Final = f"""{TEMPLATE}apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {{name: train}}
spec: {{tasks: [{{name: main, replicas: 1, template: {{spec: {POD_SPEC}}}}}]}}
"""
DETAIL: Final = (
    '"volcano" has to allocate the ResourceClaims (DRA) of the pod itself; where it does not, or no such '
    "scheduler runs, the pod waits for ever"
)
FIX: Final = "remove schedulerName, or list the scheduler in adoptSchedulers with its own name if it supports claims"
SNAPSHOT: Final = ("--snapshot", CLUSTER)


def warnings(manifest: str, *options: object) -> list[tuple[str, str, str]]:
    result = drawbridge("check", "-f", "-", *SNAPSHOT, "-o", "json", *options, stdin=manifest)
    return [
        (finding["path"], finding["message"], finding["fix"])
        for finding in json.loads(result.stdout)["findings"]
        if finding["code"] == "foreignScheduler"
    ]


def scheduler_line(manifest: str, *options: object) -> str:
    call = ("why", "pod", "train", "-f", "-", *SNAPSHOT, "-o", "json", *options)
    scheduler: str = json.loads(drawbridge(*call, stdin=manifest).stdout)["scheduler"] or ""
    return scheduler


@pytest.mark.parametrize(
    ("manifest", "path"),
    [
        (POD, "spec.schedulerName"),
        (DEPLOYMENT, "spec.template.spec.schedulerName"),
        (VOLCANO_JOB, "spec.tasks[0].template.spec.schedulerName"),
    ],
    ids=["pod", "workload", "workload of another project"],
)
def test_check_warns_where_a_foreign_scheduler_has_to_allocate_claims(
    manifest: str, path: str
) -> None:
    assert [(path, DETAIL, FIX)] == warnings(manifest)


def test_why_says_what_check_says() -> None:
    assert f"{DETAIL}: {FIX}" == scheduler_line(POD)


@pytest.mark.parametrize("scheduler", ["", "default-scheduler", SCHEDULER_NAME])
def test_schedulers_that_support_claims_have_no_warning(scheduler: str) -> None:
    manifest = POD.replace("schedulerName: volcano", f"schedulerName: {json.dumps(scheduler)}")

    assert ([], "") == (warnings(manifest), scheduler_line(manifest))


def test_a_scheduler_that_is_told_to_support_claims_has_no_warning(tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("translation: {adoptSchedulers: {volcano: volcano}}")

    for options in (("--settings", settings), ("--policy-aware-scheduler", "volcano")):
        assert ([], "") == (warnings(POD, *options), scheduler_line(POD, *options))


def test_keys_that_stay_in_the_pod_are_the_only_warning() -> None:
    keys = "{name: keys, image: a, resources: {limits: {nvidia.com/gpu: 1}}}"
    both = POD.replace("containers: [", f"containers: [{keys}, ")

    ((_, message, _),) = warnings(both)

    assert message.startswith('not translated: "volcano" may not support claims')
