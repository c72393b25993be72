"""The verdict of `drawbridge check` and `why` on foreign schedulers of pods with claims."""

import json
from pathlib import Path
from typing import Final

import pytest

from kube.names import SCHEDULER_NAME, TRANSLATE_LABEL
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
FIX: Final = (
    "set schedulerName to default-scheduler, or list the scheduler in adoptSchedulers with its own name "
    "if it supports claims"
)
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


# --- pods that keep their keys --------------------------------------------------------------------

KEYED_SPEC: Final = (
    "{schedulerName: volcano, containers: [{name: main, image: a, "
    "resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 20480}}}]}"
)
KEYED_POD: Final = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: train}}\nspec: {KEYED_SPEC}\n"
KEYED_JOB: Final = f"""apiVersion: batch/v1
kind: Job
metadata: {{name: train}}
spec: {{parallelism: 2, completions: 2, template: {{spec: {KEYED_SPEC}}}}}
"""


def explain(*call: str, manifest: str) -> tuple[str, str]:
    """Return the output of `why` on one line, and its standard error."""
    result = drawbridge("why", *call, *SNAPSHOT, stdin=manifest, COLUMNS="999")
    assert result.exit_code == 0, result.output
    return " ".join(result.stdout.split()), result.stderr


def kept_keys(manifest: str) -> str:
    ((path, message, fix),) = warnings(manifest)
    assert path.endswith("spec.schedulerName")
    return f"spec.schedulerName: {message}; {fix} [foreignScheduler]"


@pytest.mark.parametrize(
    "call", [("-f", "-"), ("pod", "train", "--snapshot", "-")], ids=["manifest", "pod of a cluster"]
)
def test_why_says_first_that_keys_stay_in_the_pod(call: tuple[str, ...]) -> None:
    text, notes = explain(*call, manifest=KEYED_POD)

    assert f"status pending: {kept_keys(KEYED_POD)}" in text
    assert "device plugin" not in notes


def test_why_says_of_a_workload_that_keys_stay_in_its_pods() -> None:
    text, _ = explain("job/train", "-f", "-", manifest=KEYED_JOB)

    assert f"0 of 2 pods get a place: {kept_keys(KEYED_POD)} pending 2 pods" in text
    assert f"status pending: {kept_keys(KEYED_POD)}" in text


def test_why_says_it_beside_the_node_that_kubernetes_would_choose() -> None:
    mapped = (
        "{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: gpu.example.com}, "
        "spec: {extendedResourceName: nvidia.com/gpu, selectors: "
        "[{cel: {expression: \"device.driver == 'gpu.nvidia.com'\"}}]}}\n"
    )
    pod = KEYED_POD.replace(", nvidia.com/gpumem: 20480", "")

    text, _ = explain("-f", "-", manifest=f"{mapped}---\n{pod}")

    assert "status not created yet: it would be placed on node" in text
    assert f"scheduler {kept_keys(KEYED_POD)}" in text


@pytest.mark.parametrize(
    "call", [("-f", "-"), ("pod", "train", "--snapshot", "-")], ids=["manifest", "pod of a cluster"]
)
@pytest.mark.parametrize("way", ["settings", "label", "default scheduler"])
def test_why_has_no_such_words_where_the_keys_are_translated(
    way: str, call: tuple[str, ...], tmp_path: Path
) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("translation: {adoptSchedulers: {volcano: volcano}}")
    options = ("--settings", str(settings)) if way == "settings" else ()
    manifest = KEYED_POD
    if way == "label":
        manifest += (
            "---\napiVersion: v1\nkind: Namespace\n"
            f"metadata: {{name: default, labels: {{{TRANSLATE_LABEL}: 'true'}}}}\n"
        )
    if way == "default scheduler":
        manifest = manifest.replace("schedulerName: volcano, ", "")

    assert "foreignScheduler" not in explain(*call, *options, manifest=manifest)[0]
