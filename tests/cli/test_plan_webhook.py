"""`drawbridge verify --webhook`, and `--wave` of a live cluster: pods are translated, or the obstacle is named."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest
from click.testing import Result

from kube.api.core import Pod, ResourceQuota
from kube.api.meta import convert
from kube.api.urls import (
    CONFIG_MAPS,
    ENDPOINT_SLICES,
    MUTATING_WEBHOOK_CONFIGURATIONS,
    NAMESPACES,
    PODS,
    RESOURCE_QUOTAS,
    Resource,
)
from kube.manifests.dump import dump_yaml
from kube.manifests.reader import read_paths
from kube.names import CONFIGURATION, NAMESPACE, REQUEST_ANNOTATION, SERVICE, TRANSLATE_LABEL
from migration.plan.model.plan import PlannedWorkload, Wave
from migration.trial.model import TrialPod
from migration.trial.pods import exhausted_line, make_trial_pod, trial_workloads
from testing.command import ROOT, drawbridge
from testing.documents import Document, namespace
from testing.fake_api_server import Call, FakeApiServer
from testing.kubeconfig import kubeconfig_of
from testing.migration import GPU, SHARE, plugin_node, workload
from testing.plan import call
from testing.waves import UID, write_plan

SCHEMA: Final = json.loads((ROOT / "docs/reference/schemas/verify.json").read_text())
DEPLOYMENTS: Final = Resource(group="apps", version="v1", plural="deployments")
CONFIGURATION_OBJECT: Final = f"MutatingWebhookConfiguration//{CONFIGURATION}"
SERVICE_OBJECT: Final = f"Service/{NAMESPACE}/{SERVICE}"
WEB: Final = "Deployment/team/web"
OPTED_IN: Final = {TRANSLATE_LABEL: "true"}


def configuration(**changes: Any) -> Document:
    expression = {"key": TRANSLATE_LABEL, "operator": "In", "values": ["true", "selected"]}
    webhook = {
        "name": "pods.drawbridge.internal",
        "clientConfig": {
            "service": {"name": SERVICE, "namespace": NAMESPACE},
            "caBundle": "bundle",
        },
        "rules": [{"resources": ["pods"]}],
        "namespaceSelector": {"matchExpressions": [expression]},
        **changes,
    }
    return {"metadata": {"name": CONFIGURATION}, "webhooks": [webhook]}


def endpoint_slice(*, ready: bool | None) -> Document:
    labels = {"kubernetes.io/service-name": SERVICE}
    conditions = {} if ready is None else {"ready": ready}
    return {
        "metadata": {"name": "webhook-1", "namespace": NAMESPACE, "labels": labels},
        "endpoints": [{"addresses": ["192.0.2.7"], "conditions": conditions}],
    }


def translate(document: Document) -> None:
    """Change a pod as the webhook does."""
    if "containers" in document.get("spec", {}):
        document["metadata"].setdefault("annotations", {})[REQUEST_ANNOTATION] = "{}"
        claim = {"name": "gpu", "resourceClaimTemplateName": "t"}
        document["spec"]["resourceClaims"] = [claim]


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan with a first wave that opts in the namespaces other and team."""
    return write_plan(tmp_path_factory.mktemp("plan"))


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    """A cluster with a webhook that translates, and both namespaces opted in."""
    async with FakeApiServer() as server:
        server.put(NAMESPACES, {"metadata": {"name": "kube-system", "uid": UID}})
        server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration())
        server.put(ENDPOINT_SLICES, endpoint_slice(ready=True))
        for name in ("team", "other"):
            server.put(NAMESPACES, namespace(name, OPTED_IN))
        server.put(DEPLOYMENTS, workload("web", SHARE, ["hami-0"])[0])
        server.put(DEPLOYMENTS, workload("api", SHARE, ["hami-1"], namespace="other")[0])
        server.drop_fields = translate
        yield server


async def verify(server: FakeApiServer, folder: Path, *flags: object) -> Result:
    cluster = ("--live", "--kubeconfig", kubeconfig_of(server, folder), "--context", "here")
    return await asyncio.to_thread(drawbridge, "verify", *cluster, *flags, "-o", "json")


def states(result: Result) -> dict[str, tuple[str, str]]:
    """Object to state and message."""
    document = json.loads(result.stdout)
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    return {check["object"]: (check["state"], check["message"]) for check in document["checks"]}


async def test_a_webhook_that_translates_is_right(
    server: FakeApiServer, plan: Path, tmp_path: Path
) -> None:
    result = await verify(server, tmp_path, "--webhook", "--wave", plan / "wave-1")

    assert 0 == result.exit_code, result.output
    assert {
        CONFIGURATION_OBJECT: ("ok", "has its caBundle and its rules"),
        SERVICE_OBJECT: ("ok", "ready endpoints: 1"),
        "Deployment/other/api": ("ok", "a new pod of it (a dry run) gets claims"),
        WEB: ("ok", "a new pod of it (a dry run) gets claims"),
    } == states(result)
    assert [] == server.objects(PODS)
    created = [call for call in server.calls if call.method == "POST"]
    assert ["All", "All"] == [call.query["dryRun"] for call in created]


def _no_configuration(server: FakeApiServer) -> None:
    server.remove(MUTATING_WEBHOOK_CONFIGURATIONS, CONFIGURATION)


def _another_webhook(server: FakeApiServer) -> None:
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(name="updates.drawbridge.internal"))


def _no_bundle(server: FakeApiServer) -> None:
    service = {"service": {"name": SERVICE, "namespace": NAMESPACE}}
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(clientConfig=service))


def _no_rules(server: FakeApiServer) -> None:
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(rules=[]))


def _shadow(server: FakeApiServer) -> None:
    metadata = {"name": "drawbridge-settings", "namespace": NAMESPACE}
    settings = {"settings.yaml": "translation: {mode: Shadow}"}
    server.put(CONFIG_MAPS, {"metadata": metadata, "data": settings})


def _no_endpoints(server: FakeApiServer) -> None:
    server.remove(ENDPOINT_SLICES, "webhook-1", NAMESPACE)


def _unready_endpoint(server: FakeApiServer) -> None:
    server.put(ENDPOINT_SLICES, endpoint_slice(ready=False))


def _exempt_namespace(server: FakeApiServer) -> None:
    exempt = {"key": "team", "operator": "DoesNotExist"}
    server.put(
        MUTATING_WEBHOOK_CONFIGURATIONS,
        configuration(namespaceSelector={"matchExpressions": [exempt]}),
    )
    server.put(NAMESPACES, namespace("team", {**OPTED_IN, "team": "yes"}))


def _nothing_is_translated(server: FakeApiServer) -> None:
    server.drop_fields = lambda _: None


def _webhook_does_not_answer(server: FakeApiServer) -> None:
    server.fail(500, times=9, matches=_creates_a_pod)


def _label_is_missing(server: FakeApiServer) -> None:
    server.put(NAMESPACES, namespace("team"))


def _creates_a_pod(call: Call) -> bool:
    return call.method == "POST" and call.path.endswith("/pods")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (_no_configuration, (CONFIGURATION_OBJECT, "there is none, so no pod gets claims")),
        (_another_webhook, (CONFIGURATION_OBJECT, "it has no webhook for pods")),
        (_no_bundle, (CONFIGURATION_OBJECT, "has no caBundle, so no API server trusts it")),
        (_no_rules, (CONFIGURATION_OBJECT, "has no rules, so no pod is sent to it")),
        (_shadow, (CONFIGURATION_OBJECT, "mode Shadow changes no pod")),
        (_no_endpoints, (SERVICE_OBJECT, "no endpoint of the webhook is ready")),
        (_unready_endpoint, (SERVICE_OBJECT, "no endpoint of the webhook is ready")),
        (
            _exempt_namespace,
            ("Namespace//team", "the namespaceSelector of zz-drawbridge leaves it"),
        ),
        (_nothing_is_translated, (WEB, "a new pod of it (a dry run) gets no claims")),
        (_webhook_does_not_answer, (WEB, "a new pod of it (a dry run) is rejected, ")),
        (_label_is_missing, ("Namespace//team", f"label {TRANSLATE_LABEL} is missing, not true")),
    ],
)
async def test_what_keeps_pods_from_their_claims_is_named(
    server: FakeApiServer,
    plan: Path,
    tmp_path: Path,
    change: Callable[[FakeApiServer], None],
    expected: tuple[str, str],
) -> None:
    subject, message = expected
    change(server)

    result = await verify(server, tmp_path, "--webhook", "--wave", plan / "wave-1")

    assert 1 == result.exit_code, result.output
    state, text = states(result)[subject]
    assert (True, True) == (state in {"failed", "waiting"}, message in text), text


async def test_the_webhook_alone_is_checked_before_there_is_a_wave(
    server: FakeApiServer, tmp_path: Path
) -> None:
    right = await verify(server, tmp_path, "--webhook")
    _no_endpoints(server)
    wrong = await verify(server, tmp_path, "--webhook")

    assert (0, 1) == (right.exit_code, wrong.exit_code), right.output
    assert {CONFIGURATION_OBJECT, SERVICE_OBJECT} == set(states(right))
    assert [] == [call for call in server.calls if call.method == "POST"]


async def test_a_wave_is_not_right_while_nothing_would_be_translated(
    server: FakeApiServer, plan: Path, tmp_path: Path
) -> None:
    _no_configuration(server)

    after = await verify(server, tmp_path, "--wave", plan / "wave-1")
    before = await verify(server, tmp_path, "--wave", plan / "wave-1", "--before")

    for result in (after, before):
        assert 1 == result.exit_code
        assert "failed" == states(result)[CONFIGURATION_OBJECT][0]


async def test_before_a_wave_the_namespaces_of_earlier_ones_are_tried(
    server: FakeApiServer, plan: Path, tmp_path: Path
) -> None:
    _nothing_is_translated(server)

    result = await verify(server, tmp_path, "--wave", plan / "wave-2", "--before")

    assert "failed" == states(result)[WEB][0]


async def test_a_wave_opts_in_the_rest_of_a_namespace_that_moved_in_part(
    server: FakeApiServer, plan: Path, tmp_path: Path
) -> None:
    """An earlier plan left it `selected`; the workloads of this one have no label of their own yet."""
    server.put(NAMESPACES, namespace("team", {TRANSLATE_LABEL: "selected"}))

    def translate_labelled(document: Document) -> None:
        is_elsewhere = document["metadata"].get("namespace") != "team"
        if is_elsewhere or document["metadata"]["labels"].get(TRANSLATE_LABEL) == "true":
            translate(document)

    server.drop_fields = translate_labelled

    result = await verify(server, tmp_path, "--wave", plan / "wave-1", "--before")

    assert ("ok", "a new pod of it (a dry run) gets claims") == states(result)[WEB]


async def test_a_webhook_with_a_url_has_no_endpoints(
    server: FakeApiServer, plan: Path, tmp_path: Path
) -> None:
    config = {"url": "https://192.0.2.7/mutate", "caBundle": "bundle"}
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration(clientConfig=config))

    result = await verify(server, tmp_path, "--webhook", "--wave", plan / "wave-1")

    assert 0 == result.exit_code, result.output
    assert {CONFIGURATION_OBJECT, "Deployment/other/api", WEB} == set(states(result))


async def test_a_used_up_quota_is_no_reason_to_stop(
    server: FakeApiServer, plan: Path, tmp_path: Path
) -> None:
    """Only a new pod is more than the quota allows: the wave replaces pods."""
    quota = {"metadata": {"name": "pods", "namespace": "team"}, "spec": {"hard": {"pods": "2"}}}
    server.put(RESOURCE_QUOTAS, {**quota, "status": {"used": {"pods": "2"}}})
    in_team = "/namespaces/team/"
    server.fail(403, times=9, matches=lambda call: _creates_a_pod(call) and in_team in call.path)

    result = await verify(server, tmp_path, "--webhook", "--wave", plan / "wave-1")

    assert 0 == result.exit_code, result.output
    state, message = states(result)[WEB]
    assert ("note", True) == (state, "ResourceQuota team/pods, pods is used up" in message)


@pytest.mark.parametrize(
    ("answer", "ready", "expected"),
    [
        (422, 0, (0, "note")),
        (422, 1, (1, "failed")),
        (422, None, (1, "failed")),
        (500, 0, (1, "failed")),
    ],
)
async def test_a_pod_that_waited_before_the_plan_may_be_rejected(
    server: FakeApiServer,
    plan: Path,
    tmp_path: Path,
    *,
    answer: int,
    ready: int | None,
    expected: tuple[int, str],
) -> None:
    """It requested more than any node has: switch.sh stopped between the labels of namespaces and the restarts."""
    path = plan / "plan.yaml"
    (source,) = read_paths([str(path)])
    for wave in source.document["waves"]:
        for entry in wave["workloads"]:
            entry["readyPods"] = ready
    path.write_text(dump_yaml([source.document]))
    in_team = "/namespaces/team/"
    server.fail(answer, times=9, matches=lambda call: _creates_a_pod(call) and in_team in call.path)

    result = await verify(server, tmp_path, "--webhook", "--wave", plan / "wave-1")

    state, message = states(result)[WEB]
    assert expected == (result.exit_code, state)
    is_told = message.startswith(
        "none of its pods ran when the plan was made, and a new one (a dry run) is rejected"
    )
    assert is_told is (state == "note")


def test_workloads_whose_pods_ran_are_tried_first() -> None:
    workloads = tuple(
        planned(f"Deployment/team/{name}", ready_pods=ready)
        for name, ready in (("big", 0), ("old", None), ("web", 1))
    )
    bare = planned("Pod/team/bare", ready_pods=1)
    wave = Wave(
        wave=1,
        nodes=(),
        namespaces=("team",),
        workloads=(bare, *workloads),
        free_before=0,
        free_after=0,
        split=False,
        notes=(),
    )

    names = [entry.object.rpartition("/")[2] for entry in trial_workloads([wave])["team"]]

    assert ["old", "web", "big", "bare"] == names


async def test_what_may_not_be_read_is_a_note(
    server: FakeApiServer, plan: Path, tmp_path: Path
) -> None:
    hidden = ("mutatingwebhookconfigurations", "deployments/api")
    server.fail(403, times=9, matches=lambda call: call.path.partition("?")[0].endswith(hidden[1]))
    server.fail(403, times=9, matches=lambda call: hidden[0] in call.path)

    result = await verify(server, tmp_path, "--webhook", "--wave", plan / "wave-1")

    assert 0 == result.exit_code, result.output
    assert "note" == states(result)[CONFIGURATION_OBJECT][0]
    state, message = states(result)["Deployment/other/api"]
    assert ("note", True) == (state, "since deployments cannot be read" in message)


async def test_a_workload_that_is_gone_is_a_note(
    server: FakeApiServer, plan: Path, tmp_path: Path
) -> None:
    server.remove(DEPLOYMENTS, "web", "team")

    result = await verify(server, tmp_path, "--webhook", "--wave", plan / "wave-1")

    state, message = states(result)[WEB]
    assert (0, "note", True) == (result.exit_code, state, "since it is gone" in message)


def test_a_snapshot_does_not_tell(plan: Path, tmp_path: Path) -> None:
    snapshot = plan.parent / "cluster.yaml"

    result = drawbridge("verify", "--snapshot", snapshot, "--wave", plan / "wave-1", "-o", "json")

    assert (
        "note",
        "a snapshot does not tell whether the webhook translates pods: --live does",
    ) == (states(result)[CONFIGURATION_OBJECT])
    refused = drawbridge("verify", "--snapshot", snapshot, "--webhook")
    assert (2, True) == (refused.exit_code, "no snapshot has webhooks" in refused.output)


# --- trial pods -----------------------------------------------------------------------------------


def planned(reference: str, **fields: Any) -> PlannedWorkload:
    return PlannedWorkload(object=reference, pods=1, outcome="translated", **fields)


def test_a_trial_pod_is_what_its_controller_would_create() -> None:
    owner = workload("web", SHARE, [], kind="StatefulSet")[0]
    owner["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "data"}}]
    owner["spec"]["template"]["spec"]["volumes"] = [{"name": "cache", "emptyDir": {}}]

    pod = make_trial_pod(planned("StatefulSet/team/web"), owner, "true")

    assert isinstance(pod, TrialPod)
    claim = {"claimName": "drawbridge-trial-data"}
    assert [
        {"name": "cache", "emptyDir": {}},
        {"name": "data", "persistentVolumeClaim": claim},
    ] == pod.document["spec"]["volumes"]
    assert {"app": "web"} == pod.document["metadata"]["labels"]
    assert "nvidia.com/gpumem" in pod.document["spec"]["containers"][0]["resources"]["limits"]


@pytest.mark.parametrize("kind", ["Job", "CronJob"])
def test_a_pod_of_a_job_that_has_not_begun_has_not_waited(kind: str) -> None:
    """It may begin at any moment, and a policy that rejects its next one is no reason of its template."""
    template = workload("web", SHARE, [])[0]["spec"]["template"]
    spec = {"template": template}
    spec = {"jobTemplate": {"spec": spec}} if kind == "CronJob" else spec
    owner = {"apiVersion": "batch/v1", "kind": kind, "metadata": {"name": "web"}, "spec": spec}

    pod = make_trial_pod(planned(f"{kind}/team/web", ready_pods=0), owner, "true")

    assert isinstance(pod, TrialPod)
    assert not pod.has_waited


def test_a_pod_of_a_part_of_a_namespace_has_the_label_of_its_own() -> None:
    owner = workload("web", SHARE, [])[0]

    pod = make_trial_pod(planned(WEB, labelled=True), owner, "true")

    assert isinstance(pod, TrialPod)
    assert {"app": "web", **OPTED_IN} == pod.document["metadata"]["labels"]


def test_a_pod_without_a_controller_is_tried_without_its_node() -> None:
    bare = workload("web", SHARE, ["hami-0"])[1]

    pod = make_trial_pod(planned("Pod/team/web-0"), bare, "true")

    assert isinstance(pod, TrialPod)
    assert "nodeName" not in pod.document["spec"]
    bare["spec"]["resourceClaims"] = [{"name": "gpu"}]
    assert "it has claims already" == make_trial_pod(planned("Pod/team/web-0"), bare, "true")


@pytest.mark.parametrize(
    ("expected", "hard", "used"),
    [
        ("team/q, pods", {"pods": "3"}, {"pods": "3"}),
        ("", {"pods": "3"}, {"pods": "2"}),
        ("team/q, requests.cpu", {"requests.cpu": "4"}, {"requests.cpu": "3500m"}),
        ("team/q, limits.memory", {"limits.memory": "1Gi"}, {"limits.memory": "1Gi"}),
        # A translated pod has no device keys.
        ("", {"requests.nvidia.com/gpu": "1"}, {"requests.nvidia.com/gpu": "1"}),
    ],
)
def test_a_line_that_leaves_no_room(
    expected: str, hard: Mapping[str, str], used: Mapping[str, str]
) -> None:
    quota = {
        "metadata": {"name": "q", "namespace": "team"},
        "spec": {"hard": hard},
        "status": {"used": used},
    }
    limits = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}
    container = {"name": "c", "resources": {"limits": limits}}
    pod = convert({"spec": {"containers": [container]}}, Pod)

    assert expected == exhausted_line([convert(quota, ResourceQuota)], pod)


# --- without a webhook ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "is_asked"), [({}, False), (OPTED_IN, True)], ids=["none", "one"]
)
async def test_a_plan_without_a_label_needs_no_webhook(
    server: FakeApiServer, tmp_path: Path, labels: dict[str, str], *, is_asked: bool
) -> None:
    """A cluster of whole GPUs without Drawbridge was told to install it first."""
    objects = [plugin_node("gpu-0"), plugin_node("gpu-1"), *workload("web", {GPU: "1"}, ["gpu-0"])]
    assert 0 == call(tmp_path, objects, "--wave-nodes", 1).exit_code
    for name in ("other", "team"):
        server.put(NAMESPACES, namespace(name, labels))
    server.remove(MUTATING_WEBHOOK_CONFIGURATIONS, CONFIGURATION)

    result = await verify(server, tmp_path, "--wave", tmp_path / "plan" / "wave-1", "--before")

    assert is_asked == (CONFIGURATION_OBJECT in states(result))
