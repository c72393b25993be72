"""`drawbridge status`: each part of an installation, the next step, and the wait until it is ready."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from click.testing import Result

from certs.authority import Authority
from cli.reading.installation import (
    CERTIFICATES_LEASE,
    CONFIGURATION_KINDS,
    CONTROLLER_LEASE,
    Component,
    Installation,
    TranslatedPods,
)
from cli.reading.settings import SharedSettings
from cli.verbs.status.build import build_status
from cli.verbs.status.command import wait_until_ready
from cli.verbs.status.model import State, StatusAnswer
from cli.verbs.status.text import format_status
from kube.api.device_quota import DeviceQuota, LimitStatus
from kube.api.meta import ObjectMeta, convert, rfc3339
from kube.api.policy import Condition, DeviceCompatibilityPolicy
from kube.api.resource import ResourceSlice
from kube.api.urls import (
    CONFIG_MAPS,
    NAMESPACES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_SLICES,
    WEBHOOK_CONFIGURATIONS,
    Resource,
)
from kube.errors import KubeError
from kube.names import BRIDGE_LEASE, CONFIGURATION, NAMESPACE, REQUEST_ANNOTATION
from kube.runtime.leader import LEASES, LeaseSpec
from process.model.durations import Duration
from process.profiles.translation import TranslationSettings
from testing.command import ROOT, drawbridge
from testing.documents import Document
from testing.fake_api_server import FakeApiServer
from translation.cluster.snapshot import Mode, NativePolicy, WideMapping

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
VERSION = "0.1.0"
DEPLOYMENTS = Resource(group="apps", version="v1", plural="deployments")


def bundle(days: int) -> str:
    """Return a caBundle with an authority that ends so many days from now."""
    authority = Authority.create(
        "test", now=NOW - timedelta(days=30), life=timedelta(days=30 + days)
    )
    return base64.b64encode(authority.certificate_pem).decode()


BUNDLE = bundle(300)


def configuration(
    *names: str, ca_bundle: str = BUNDLE, rules: bool = True, **fields: Any
) -> Document:
    service = {"name": "drawbridge-webhook", "namespace": NAMESPACE}
    return {
        "metadata": {"name": CONFIGURATION},
        "webhooks": [
            {
                "name": f"{name}.drawbridge.internal",
                "clientConfig": {"service": service, "caBundle": ca_bundle},
                "rules": [{"operations": ["CREATE"]}] if rules else [],
                "failurePolicy": "Fail",
                **fields,
            }
            for name in names
        ],
    }


def component(name: str, ready: int = 2, **fields: Any) -> Component:
    values: dict[str, Any] = {
        "component": name,
        "kind": "Deployment",
        "namespace": NAMESPACE,
        "name": f"drawbridge-{name}",
        "desired": 2,
        "ready": ready,
        "updated": 2,
        "images": (f"registry.example/drawbridge-dra:{VERSION}",),
    }
    return Component(**values | fields)


def lease(seconds_ago: float = 5.0) -> LeaseSpec:
    return LeaseSpec(
        holder_identity="pod-a",
        lease_duration_seconds=15,
        renew_time=rfc3339(NOW - timedelta(seconds=seconds_ago)),
    )


SLICE = convert(
    {
        "metadata": {"name": "a"},
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": "a",
            "pool": {"name": "a", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0"}, {"name": "gpu-1"}],
        },
    },
    ResourceSlice,
)


def installation(**fields: Any) -> Installation:
    """Return an installation with every part ready."""
    values: dict[str, Any] = {
        "kubernetes": "v1.37.1",
        "read_at": NOW,
        "gates": {"DRAConsumableCapacity": True},
        "components": tuple(map(component, ("webhook", "controller", "certificates"))),
        "configurations": {
            CONFIGURATION_KINDS[0]: configuration("pods", "updates"),
            CONFIGURATION_KINDS[1]: configuration("workloads", "objects"),
        },
        "leases": {CONTROLLER_LEASE: lease(), CERTIFICATES_LEASE: lease()},
        "slices": (SLICE,),
    }
    return Installation(**values | fields)


def status(**fields: Any) -> StatusAnswer:
    return build_status(installation(**fields), client_version=VERSION, now=NOW)


def states(answer: StatusAnswer, *ignored: State) -> dict[str, str]:
    return {
        check.name: check.state.value
        for check in answer.checks
        if check.state not in {State.OK, State.OFF, *ignored}
    }


def replaced(name: str, **fields: Any) -> tuple[Component, ...]:
    return tuple(
        component(entry, **(fields if entry == name else {}))
        for entry in ("webhook", "controller", "certificates")
    )


def opt_in_settings() -> SharedSettings:
    return SharedSettings(translation=TranslationSettings(mode=Mode.OPT_IN))


def opt_in_configurations() -> Mapping[str, Document]:
    required = {"key": "drawbridge.internal/translate", "operator": "In", "values": ["true"]}
    selector = {"matchExpressions": [required]}
    return {CONFIGURATION_KINDS[0]: configuration("pods", namespaceSelector=selector)}


# --- parts ----------------------------------------------------------------------------------------


def test_an_installation_that_is_whole_is_ready() -> None:
    answer = status()

    assert (answer.ready, states(answer), answer.next_step) == (True, {}, "")
    assert (answer.mode, answer.namespace) == ("OptOut", NAMESPACE)
    assert [(entry.driver, entry.nodes, entry.devices) for entry in answer.drivers] == [
        ("gpu.nvidia.com", 1, 2)
    ]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param(
            {"components": replaced("webhook", ready=1)}, {"webhook": "waiting"}, id="a replica"
        ),
        pytest.param(
            {"components": replaced("webhook", updated=1)}, {"webhook": "waiting"}, id="a rollout"
        ),
        pytest.param(
            {"components": replaced("webhook", images=("a:0.2.0",))},
            {"versions": "waiting"},
            id="two versions",
        ),
        pytest.param(
            {"leases": {CERTIFICATES_LEASE: lease()}}, {"controller": "waiting"}, id="no leader"
        ),
        pytest.param(
            {"leases": {CERTIFICATES_LEASE: lease(), CONTROLLER_LEASE: lease(300)}},
            {"controller": "waiting"},
            id="a leader that is gone",
        ),
        pytest.param(
            {"configurations": dict.fromkeys(CONFIGURATION_KINDS)},
            {"mutating": "failed", "validating": "failed", "certificates end": "waiting"},
            id="the emergency stop",
        ),
        pytest.param(
            {"configurations": {CONFIGURATION_KINDS[0]: configuration("pods", ca_bundle="")}},
            {"mutating": "waiting", "certificates end": "waiting"},
            id="no caBundle",
        ),
        pytest.param(
            {"configurations": {CONFIGURATION_KINDS[0]: configuration("pods", rules=False)}},
            {"mutating": "waiting"},
            id="no rules",
        ),
        pytest.param(
            {"configurations": {CONFIGURATION_KINDS[0]: configuration("routing", rules=False)}},
            {},
            id="no rules for routing, which are only there beside the bridge",
        ),
        pytest.param(
            {
                "configurations": {
                    CONFIGURATION_KINDS[0]: configuration("pods", ca_bundle=bundle(5))
                }
            },
            {"certificates end": "waiting"},
            id="an authority that ends soon",
        ),
        pytest.param(
            {
                "configurations": {
                    CONFIGURATION_KINDS[0]: configuration("pods", ca_bundle=bundle(-1))
                }
            },
            {"certificates end": "failed"},
            id="an authority that has ended",
        ),
        pytest.param({"settings": opt_in_settings()}, {"mode": "failed"}, id="modes differ"),
        pytest.param(
            {"pods": TranslatedPods(total=2, without_template=("team/a",))},
            {"translated pods": "waiting"},
            id="a pod without template",
        ),
        pytest.param(
            {"pods": TranslatedPods(total=2, without_claim=("team/a",))},
            {"translated pods": "waiting"},
            id="a pod without claim",
        ),
        pytest.param({"owned": ("gpu.nvidia.com",)}, {"bridge": "failed"}, id="nobody allocates"),
        pytest.param(
            {"components": (*installation().components, component("observer", ready=0))},
            {"observer": "waiting"},
            id="the observer",
        ),
    ],
)
def test_what_is_not_ready_is_named(fields: Mapping[str, Any], expected: dict[str, str]) -> None:
    answer = status(**fields)

    assert states(answer) == expected
    assert answer.ready is not bool(expected)
    assert bool(answer.next_step) is bool(expected)


def test_the_bridge_is_ready_when_it_leads() -> None:
    answer = status(
        owned=("gpu.nvidia.com",),
        components=(*installation().components, component("bridge")),
        leases={**installation().leases, BRIDGE_LEASE: lease()},
    )

    assert (answer.ready, answer.owned_drivers) == (True, ("gpu.nvidia.com",))


def test_a_bridge_that_leads_and_allocates_nothing_is_not_ready() -> None:
    refusal = Condition(type="Serving", status="False", reason="FenceOpen", message="it is open")
    answer = status(
        owned=("gpu.nvidia.com",),
        not_serving=refusal,
        components=(*installation().components, component("bridge")),
        leases={**installation().leases, BRIDGE_LEASE: lease()},
    )

    (message,) = (check.message for check in answer.checks if check.name == "bridge")
    assert not answer.ready
    assert "allocates nothing (FenceOpen): it is open" in message


def test_a_gate_that_is_off_is_reported_and_is_no_fault() -> None:
    answer = status(gates={"DRAConsumableCapacity": False})

    (message,) = (check.message for check in answer.checks if check.name == "kubernetes")
    assert "sharesNotSupported" in message
    assert answer.ready


@pytest.mark.parametrize(("version", "is_defective"), [("v1.34.4", True), ("v1.35.0", False)])
def test_a_gate_that_is_on_is_reported_where_the_scheduler_mistakes_devices(
    version: str, is_defective: bool
) -> None:
    answer = status(kubernetes=version)

    (message,) = (check.message for check in answer.checks if check.name == "kubernetes")
    assert "claims can request shares" in message
    assert is_defective == ("the capacity of another device" in message)
    assert answer.ready


def policy(is_valid: str) -> DeviceCompatibilityPolicy:
    condition = {"type": "Valid", "status": is_valid, "reason": "ruleInvalid", "message": "rule a"}
    return convert(
        {
            "metadata": {"name": "modes"},
            "spec": {"driver": "gpu.nvidia.com"},
            "status": {"conditions": [condition]},
        },
        DeviceCompatibilityPolicy,
    )


@pytest.mark.parametrize(("is_valid", "state"), [("True", "ok"), ("False", "failed")])
def test_policies_are_reported_by_their_conditions(is_valid: str, state: str) -> None:
    answer = status(policies=(policy(is_valid),))

    (check,) = (entry for entry in answer.checks if entry.name == "policies")
    assert check.state == state


def device_quota(*, is_enforced: str, enforcement: str = "Enforce") -> DeviceQuota:
    conditions = [
        {"type": kind, "status": status_, "reason": "NoGates", "message": "install the gates"}
        for kind, status_ in (("Accepted", "True"), ("Enforced", is_enforced))
    ]
    limits = [{"name": "gpus", "driver": "gpu.nvidia.com", "devices": {}, "max": "4"}]
    spec = {"namespaceSelector": {}, "limits": limits, "enforcement": enforcement}
    document = {"metadata": {"name": "team"}, "spec": spec, "status": {"conditions": conditions}}
    return convert(document, DeviceQuota)


@pytest.mark.parametrize(
    ("quota", "state"),
    [
        (device_quota(is_enforced="True"), "ok"),
        (device_quota(is_enforced="False"), "failed"),
        (device_quota(is_enforced="False", enforcement="Audit"), "ok"),
    ],
    ids=["enforced", "by nobody", "only reports"],
)
def test_quotas_are_reported_by_their_conditions(quota: DeviceQuota, state: str) -> None:
    answer = status(quotas=(quota,))

    (check,) = (entry for entry in answer.checks if entry.name == "quotas")
    assert check.state == state


def test_quotas_that_pods_wait_for_and_that_only_report_are_named() -> None:
    full, audit = (
        device_quota(is_enforced="True"),
        device_quota(is_enforced="False", enforcement="Audit"),
    )
    assert full.status is not None
    usage = msgspec.structs.replace(
        full.status, limits=(LimitStatus(name="gpus", used="4", waiting="1"),)
    )
    audit = msgspec.structs.replace(audit, metadata=ObjectMeta(name="audit"))

    answer = status(quotas=(msgspec.structs.replace(full, status=usage), audit))

    (check,) = (entry for entry in answer.checks if entry.name == "quotas")
    assert check.state == "ok"
    assert check.message == (
        "2 in force; pods wait for team: drawbridge quota status; only to report: audit"
    )


def test_a_webhook_at_a_url_is_reported_by_what_it_has_led_to() -> None:
    """Processes beside a cluster have no Deployments; their Leases and the rules prove that they run."""
    answer = status(
        components=(),
        configurations={
            CONFIGURATION_KINDS[0]: configuration(
                "pods", clientConfig={"url": "https://host/mutate", "caBundle": BUNDLE}
            )
        },
    )

    assert (answer.ready, states(answer, State.UNKNOWN)) == (True, {})


def test_beside_a_webhook_at_a_url_the_observer_may_be_a_process_too() -> None:
    answer = status(
        components=(),
        configurations={
            CONFIGURATION_KINDS[0]: configuration(
                "pods", clientConfig={"url": "https://host/mutate", "caBundle": BUNDLE}
            )
        },
    )
    observer, driver = (
        next(entry for entry in answer.checks if entry.name == name)
        for name in ("observer", "driver")
    )

    assert (observer.state, driver.state) == (State.UNKNOWN, State.UNKNOWN)
    assert "as a process outside, as the webhook is" in observer.message


def test_processes_that_lead_are_an_installation_also_after_the_emergency_stop() -> None:
    answer = status(components=(), configurations=dict.fromkeys(CONFIGURATION_KINDS))

    assert {"mutating", "validating"} <= states(answer).keys()


def test_the_observer_alone_is_an_installation() -> None:
    answer = build_status(
        Installation(components=(component("observer"),)), client_version=VERSION, now=NOW
    )

    assert answer.ready
    assert "assess" in answer.next_step


def test_nothing_installed_is_not_ready() -> None:
    answer = build_status(Installation(), client_version=VERSION, now=NOW)

    assert (answer.ready, answer.mode) == (False, "")
    assert answer.next_step.startswith("kubectl apply -k manifests/overlays/shadow")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"slices": ()}, "install a DRA driver"),
        (
            {
                "slices": (),
                "settings": SharedSettings(translation=TranslationSettings(mode=Mode.SHADOW)),
                "configurations": {
                    CONFIGURATION_KINDS[0]: configuration("pods", failurePolicy="Ignore")
                },
            },
            "assess --live; then the mode OptIn",
        ),
        (
            {"settings": opt_in_settings(), "configurations": opt_in_configurations()},
            "kubectl label namespace",
        ),
        (
            {
                "settings": opt_in_settings(),
                "configurations": opt_in_configurations(),
                "opted": {"team": "true"},
            },
            "",
        ),
        (
            {
                "settings": opt_in_settings(),
                "configurations": opt_in_configurations(),
                "opted": {"team": "selected"},
            },
            "",
        ),
    ],
)
def test_the_next_step_leads_to_claims(fields: Mapping[str, Any], words: str) -> None:
    answer = status(**fields)

    assert answer.ready
    assert (words in answer.next_step) if words else answer.next_step == ""


def test_a_label_that_means_nothing_is_named() -> None:
    answer = status(opted={"a": "disabled", "b": "false"})

    mode = next(check for check in answer.checks if check.name == "mode")
    assert mode.message == (
        "OptOut: all namespaces; 1 opted out; label drawbridge.internal/translate of 1 namespace means nothing (a): "
        'write "true", "false" or "selected"'
    )


def test_who_may_read_nothing_is_told_so() -> None:
    unreadable = ("deployments", "mutatingwebhookconfigurations")
    answer = build_status(Installation(unreadable=unreadable), client_version=VERSION, now=NOW)

    assert not answer.ready
    assert "may not read" in answer.checks[0].message


@pytest.mark.parametrize(
    ("change", "state", "words"),
    [
        ({}, "ok", "wave 3 of 12, 14 of 40 nodes, 71 of 200 workloads: step 7 of 18, drain/gpu-14"),
        ({"wave": "$(reboot)"}, "unknown", "ConfigMap drawbridge-wave is not of drawbridge wave"),
    ],
)
def test_a_migration_says_how_far_it_is(change: dict[str, str], state: str, words: str) -> None:
    record = {
        "digest": f"sha256:{'a' * 64}",
        "direction": "next",
        "wave": "3",
        "step": "drain/gpu-14",
        "node": "gpu-14",
        "number": "7",
        "steps": "18",
        "reached": "7",
        "state": "begun",
        "who": "ada",
        "when": "2026-11-24T09:31:04Z",
        "waves": "12",
        "nodes": "14",
        "nodesTotal": "40",
        "workloads": "71",
        "workloadsTotal": "200",
    }

    answer = status(migration={**record, **change})

    (check,) = [check for check in answer.checks if check.name == "migration"]
    assert state == check.state
    assert words in check.message
    assert answer.ready


def test_what_may_not_be_read_is_unknown_and_not_failed() -> None:
    unreadable = (
        "deployments",
        "leases",
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
        "resourceslices",
    )
    answer = status(
        components=(component("webhook"),),
        configurations=dict.fromkeys(CONFIGURATION_KINDS),
        leases={},
        slices=(),
        unreadable=unreadable,
    )

    assert set(states(answer).values()) == {"unknown"}


def test_the_text_is_one_screen_without_control_characters() -> None:
    hostile = component("webhook", images=("a:\x1b[2J",))
    text = format_status(status(components=(hostile,), leases={}), 80)

    assert "\x1b[2J" not in text
    assert len(text.splitlines()) < 40
    assert "next" in text


# --- the wait -------------------------------------------------------------------------------------


class Time:
    """A clock that sleeping moves on."""

    def __init__(self) -> None:
        self.now = 0.0

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def reads(*answers: StatusAnswer | KubeError) -> Callable[[], StatusAnswer]:
    """Return a function that reads one answer after the other, the last one for ever."""
    remaining: Iterator[StatusAnswer | KubeError] = iter(answers)

    def read() -> StatusAnswer:
        answer = next(remaining, answers[-1])
        if isinstance(answer, KubeError):
            raise answer
        return answer

    return read


def test_a_wait_ends_when_all_is_ready() -> None:
    time = Time()
    waiting = status(components=replaced("webhook", ready=0))

    answer = wait_until_ready(
        reads(KubeError("starting"), waiting, status()),
        Duration(60),
        clock=time.clock,
        sleep=time.sleep,
    )

    assert answer.ready
    assert 0 < time.now < 60


def test_a_wait_ends_with_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    time = Time()
    waiting = status(components=replaced("webhook", ready=0))

    answer = wait_until_ready(reads(waiting), Duration(60), clock=time.clock, sleep=time.sleep)

    assert not answer.ready
    assert 50 < time.now <= 60
    assert capsys.readouterr().err == "waiting for webhook (60 s left)\n"


def test_a_cluster_that_never_answers_is_an_error() -> None:
    time = Time()
    with pytest.raises(KubeError):
        wait_until_ready(reads(KubeError("gone")), Duration(10), clock=time.clock, sleep=time.sleep)


# --- against an API server ------------------------------------------------------------------------


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server:
        yield server


def kubeconfig(server: FakeApiServer, folder: Path) -> Path:
    cluster = {"name": "c", "cluster": {"server": server.url}}
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "contexts": [context],
        "clusters": [cluster],
        "users": [{"name": "u", "user": {}}],
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(document))
    return path


async def call(server: FakeApiServer, folder: Path, *flags: str) -> Result:
    path = kubeconfig(server, folder)
    return await asyncio.to_thread(drawbridge, "status", "--kubeconfig", path, *flags)


def deployment(name: str, ready: int) -> Document:
    labels = {"app.kubernetes.io/name": "drawbridge", "app.kubernetes.io/component": name}
    containers = [{"image": f"registry.example/drawbridge-dra:{VERSION}"}]
    return {
        "metadata": {"name": f"drawbridge-{name}", "namespace": NAMESPACE, "labels": labels},
        "spec": {"replicas": 2, "template": {"spec": {"containers": containers}}},
        "status": {"readyReplicas": ready, "updatedReplicas": 2},
    }


def put_installation(server: FakeApiServer, ready: int = 2) -> None:
    for resource, names in zip(
        WEBHOOK_CONFIGURATIONS, (("pods", "updates"), ("workloads", "objects")), strict=True
    ):
        server.put(resource, configuration(*names, ca_bundle=far_bundle()))
    for name in ("webhook", "controller", "certificates"):
        server.put(DEPLOYMENTS, deployment(name, ready))
    for name in (CONTROLLER_LEASE, CERTIFICATES_LEASE):
        spec = msgspec.to_builtins(lease())
        spec["renewTime"] = rfc3339(datetime.now(UTC))  # noqa: TID251 - the API server's clock.
        server.put(LEASES, {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})
    server.put(RESOURCE_SLICES, msgspec.to_builtins(SLICE, enc_hook=str))


def far_bundle() -> str:
    """Return a caBundle that is valid on every day of this century."""
    return bundle(365 * 70)


async def test_a_ready_installation_ends_with_zero(server: FakeApiServer, tmp_path: Path) -> None:
    put_installation(server)
    gates = {"featureGates": '{"DRAConsumableCapacity": true}'}
    metadata = {"name": "drawbridge-inventory", "namespace": NAMESPACE}
    server.put(CONFIG_MAPS, {"metadata": metadata, "data": gates})

    result = await call(server, tmp_path, "-o", "json")
    answer = json.loads(result.stdout)

    assert (result.exit_code, answer["ready"]) == (0, True), answer
    schema = json.loads((ROOT / "docs/reference/schemas/status.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(answer)
    assert (answer["kind"], answer["apiVersion"]) == ("StatusReport", "cli.drawbridge.internal/v1")
    assert answer["featureGates"] == {"DRAConsumableCapacity": True}


async def test_a_wait_that_is_over_ends_with_one(server: FakeApiServer, tmp_path: Path) -> None:
    put_installation(server, ready=0)

    result = await call(server, tmp_path, "--wait", "1s")

    assert (result.exit_code, "0 of 2 replicas ready" in result.stdout) == (1, True)


def put_pod(server: FakeApiServer, component: str, name: str, status: Document) -> None:
    labels = {"app.kubernetes.io/name": "drawbridge", "app.kubernetes.io/component": component}
    metadata = {"name": name, "namespace": NAMESPACE, "labels": labels}
    server.put(PODS, {"metadata": metadata, "spec": {}, "status": status})


def waiting(reason: str, message: str = "", **last_state: Any) -> Document:
    state = {"waiting": {"reason": reason, "message": message}}
    container = {"name": "main", "state": state, "lastState": last_state}
    return {"phase": "Pending", "containerStatuses": [container]}


UNSCHEDULABLE = {
    "phase": "Pending",
    "conditions": [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/3 nodes are available: 3 Insufficient cpu.",
        }
    ],
}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (waiting("ImagePullBackOff", "Back-off pulling image"),
         "; container main: ImagePullBackOff: Back-off pulling image (2 pods)"),
        (waiting("CrashLoopBackOff", "back-off 5m0s",
                 terminated={"exitCode": 137, "reason": "OOMKilled"}),
         "; container main: CrashLoopBackOff: OOMKilled, exit code 137 (2 pods)"),
        (waiting("CrashLoopBackOff", "back-off 5m0s",
                 terminated={"exitCode": 2, "message": "settings.yaml: unknown key"}),
         "; container main: CrashLoopBackOff: exit code 2: settings.yaml: unknown key (2 pods)"),
        (waiting("CreateContainerConfigError", "a\x1b[2J\u202eb\nc"),
         "; container main: CreateContainerConfigError: a\\x1b[2J\\u202eb c (2 pods)"),
        (UNSCHEDULABLE, "; Unschedulable: 0/3 nodes are available: 3 Insufficient cpu. (2 pods)"),
        (waiting("ContainerCreating"), ""),
        ({"phase": "Running"}, ""),
    ],
    ids=["no image", "killed", "wrong settings", "hostile", "no node", "starting", "running"],
)  # fmt: skip
async def test_a_deployment_that_is_not_ready_says_why(
    status: Document, expected: str, server: FakeApiServer, tmp_path: Path
) -> None:
    put_installation(server, ready=0)
    for number in range(2):
        put_pod(server, "webhook", f"webhook-{number}", status)
    put_pod(server, "other", "other", waiting("ErrImagePull", "of somebody else"))

    answer = json.loads((await call(server, tmp_path, "-o", "json")).stdout)
    messages = {check["name"]: check["message"] for check in answer["checks"]}

    assert f"0 of 2 replicas ready{expected}" == messages["webhook"]
    assert "0 of 2 replicas ready, pod-a leads" == messages["controller"]


async def test_pods_that_may_not_be_read_say_nothing(server: FakeApiServer, tmp_path: Path) -> None:
    put_installation(server, ready=0)
    put_pod(server, "webhook", "webhook-0", waiting("ImagePullBackOff", "Back-off"))
    server.fail(403, times=100, matches=lambda call: call.path.endswith("/pods"))

    result = await call(server, tmp_path, "-o", "json")
    answer = json.loads(result.stdout)

    assert (1, ["pods"]) == (result.exit_code, answer["unreadable"])
    assert "0 of 2 replicas ready" == answer["checks"][0]["message"]


async def test_pods_of_a_whole_installation_are_not_asked(
    server: FakeApiServer, tmp_path: Path
) -> None:
    put_installation(server)

    await call(server, tmp_path)

    assert [] == [
        request.path for request in server.calls if "drawbridge-system/pods" in request.path
    ]


async def test_pods_that_wait_for_templates_and_claims_are_told_apart(
    server: FakeApiServer, tmp_path: Path
) -> None:
    put_installation(server)
    server.put(NAMESPACES, {"metadata": {"name": "team", "labels": {"a": "b"}}})
    labels = {"drawbridge.internal/managed": "true"}
    server.put(
        RESOURCE_CLAIM_TEMPLATES,
        {
            "metadata": {"name": "there", "namespace": "team", "labels": labels},
            "spec": {"spec": {}},
        },
    )
    for name, template, made in (
        ("no-template", "absent", False),
        ("no-claim", "there", False),
        ("whole", "there", True),
    ):
        statuses = [{"name": "gpu", "resourceClaimName": "c"}] if made else []
        server.put(
            PODS,
            {
                "metadata": {
                    "name": name,
                    "namespace": "team",
                    "annotations": {REQUEST_ANNOTATION: "{}"},
                },
                "spec": {
                    "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": template}]
                },
                "status": {"phase": "Pending", "resourceClaimStatuses": statuses},
            },
        )

    answer = json.loads((await call(server, tmp_path, "-o", "json")).stdout)

    assert answer["translatedPods"] == {
        "total": 3,
        "withoutTemplate": ["team/no-template"],
        "withoutClaim": ["team/no-claim"],
    }


async def test_no_secret_is_read(server: FakeApiServer, tmp_path: Path) -> None:
    put_installation(server)
    await call(server, tmp_path)

    assert server.calls
    assert not [entry for entry in server.calls if "secrets" in str(entry)]


async def test_a_cluster_that_does_not_answer_ends_with_two(tmp_path: Path) -> None:
    async with FakeApiServer() as server:
        path = kubeconfig(server, tmp_path)
    result = await asyncio.to_thread(drawbridge, "status", "--kubeconfig", path)

    assert (result.exit_code, result.stdout) == (2, "")


@pytest.mark.parametrize(
    ("native", "state"), [(NativePolicy.EXACT, "ok"), (NativePolicy.MAPPED, "failed")]
)
def test_a_class_that_maps_more_than_a_name_means_is_reported(
    native: NativePolicy, state: str
) -> None:
    mapping = WideMapping(
        resource="nvidia.com/mig-3g.40gb", device_class="mig.nvidia.com", reason="selects more"
    )
    settings = SharedSettings(translation=TranslationSettings(native=native))

    answer = status(wide_mappings=(mapping,), settings=settings)

    (check,) = [check for check in answer.checks if check.name == "mapping"]
    assert check.state.value == state
    assert "mappingTooWide" in check.message
    assert answer.ready == (state == "ok")


@pytest.mark.parametrize(
    ("resource", "name"),
    [("nvidia.com/gpu.shared", "nvidia.com/gpu.shared"), ("nvidia.com/hostdev", "sriov")],
)
def test_a_class_of_a_name_that_stays_is_to_lose_it(resource: str, name: str) -> None:
    """A name of a kept vocabulary was one of pods that are translated."""
    mapping = WideMapping(resource=resource, device_class="nics", reason="selects more")
    settings = SharedSettings(translation=TranslationSettings(keep=(name,)))

    answer = status(wide_mappings=(mapping,), settings=settings)

    (check,) = [check for check in answer.checks if check.name == "mapping"]
    assert "its pods get any of them where their device plugin has none free" in check.message
    assert check.fix == (
        f"take the name from the class, since it stays with its device plugin (translation.keep: [{name}])"
    )
