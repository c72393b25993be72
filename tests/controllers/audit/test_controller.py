"""The audit against an API server: the mark only rises, and stored objects are told of once."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from clusterstate.evaluator import RuleEvaluator
from clusterstate.rule_cache import RuleCache
from controllers.audit.controller import AuditController
from controllers.audit.metrics import AuditMetrics
from controllers.audit.policy_report_writer import PolicyReportWriter
from controllers.audit.report import event_of, findings_of, tally
from controllers.audit.untranslated import UntranslatedPods, project_family_keys
from controllers.model.settings import ControllerSettings, ReportFormat, Settings
from findings.field_path import FieldPath
from findings.finding import Code, error, warning
from kube.api.core import Pod
from kube.api.meta import decode
from kube.api.urls import (
    CLUSTER_REPORTS,
    CONFIG_MAPS,
    DEVICE_CLASSES,
    EVENTS,
    NODES,
    PODS,
    REPORTS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    RESOURCE_SLICES,
)
from process.model.durations import PositiveDuration
from process.profiles.profile_files import load_profiles
from testing.allocation.builders import (
    NAMESPACE,
    allocated_claim,
    claim,
    device_class,
    devices,
    node,
    request,
    result,
    slice_of,
)
from testing.documents import Document
from testing.example_objects import store
from testing.fake_api_server import (
    Call,
    FakeApiServer,
    quick_informers,
    quick_recorder,
    running,
    until,
)
from tools.webhook_examples import WEBHOOK_EXAMPLES
from translation.model.device_families import FAMILIES
from translation.reading.arbiter import VOCABULARIES

MARK: Final = "drawbridge-inventory"
FAST: Final = ControllerSettings(
    inventory_update_period=PositiveDuration(0.01), audit_period=PositiveDuration(0.02)
)


def document(value: object) -> Document:
    return msgspec.to_builtins(value, enc_hook=str)  # type: ignore[no-any-return]


class Audited:
    """An audit, the server that it looks at, and its counts."""

    def __init__(
        self, server: FakeApiServer, registry: CollectorRegistry, evaluator: RuleEvaluator
    ) -> None:
        self.server = server
        self._registry = registry
        self._evaluator = evaluator

    async def sees_devices(self, count: int) -> None:
        """Wait until the inventory has so many devices."""
        devices = None
        while devices != [count]:
            stocks = await self._evaluator.query(RuleCache.stocks)
            devices = [stock.devices for stock in stocks["gpu"].values()]
            await asyncio.sleep(0.005)

    @property
    def published_inventory(self) -> Document:
        """Return the mark of the class: driver to devices."""
        stored_object: Any = self.server.find(CONFIG_MAPS, MARK, Settings().namespace)
        text = (stored_object or {}).get("data", {}).get("seen", "{}")
        value: Document = json.loads(text).get("classes", {}).get("gpu", {})
        return value

    @property
    def events(self) -> list[Any]:
        return self.server.objects(EVENTS)

    def counted(self, **labels: str) -> float:
        return self._registry.get_sample_value("drawbridge_audit_findings", labels) or 0.0

    @property
    def took_s(self) -> float:
        return self._registry.get_sample_value("drawbridge_audit_duration_seconds") or 0.0

    def current_reports(self) -> float:
        labels = {"state": "current"}
        return self._registry.get_sample_value("drawbridge_audit_reports", labels) or 0.0


@asynccontextmanager
async def auditing(
    server: FakeApiServer, settings: ControllerSettings = FAST
) -> AsyncIterator[Audited]:
    registry = CollectorRegistry()
    async with server.client() as client:
        whole = Settings(controllers=settings)
        metrics = AuditMetrics(registry)
        informers, recorder = quick_informers(client), quick_recorder(client)
        evaluator = RuleEvaluator(informers, whole.namespace, whole.validation)
        audit = AuditController(
            client,
            whole,
            evaluator,
            recorder,
            metrics,
            pods=UntranslatedPods(informers, lambda: VOCABULARIES),
            reports=PolicyReportWriter(
                client,
                settings.audit_reports,
                metrics.show_reports,
                now=lambda: datetime(2026, 11, 20, tzinfo=UTC),
            ),
            profiles=load_profiles,
        )
        async with running(
            informers.run,
            recorder.run,
            evaluator.run,
            *(controller.run for controller in audit.controllers),
        ):
            yield Audited(server, registry, evaluator)


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    """A node with two devices."""
    async with FakeApiServer() as api_server:
        api_server.put(NODES, document(node("node-1")))
        api_server.put(DEVICE_CLASSES, document(device_class()))
        publish(api_server, "gpu-0", "gpu-1")
        yield api_server


def publish(server: FakeApiServer, *names: str) -> None:
    server.put(RESOURCE_SLICES, document(slice_of(*devices(*names))))


def numbers(counts: Document) -> list[int]:
    return [entry["devices"] for entry in counts.values()]


# --- the mark -------------------------------------------------------------------------------------


async def test_the_mark_rises_and_never_falls(server: FakeApiServer) -> None:
    async with auditing(server) as audit_:
        await until(lambda: numbers(audit_.published_inventory) == [2])

        publish(server, "gpu-0", "gpu-1", "gpu-2")
        await until(lambda: numbers(audit_.published_inventory) == [3])

        publish(server, "gpu-0")
        server.put(NODES, document(node("node-2")))
        await until(lambda: server.watching >= 9)
        assert numbers(audit_.published_inventory) == [3]

    async with auditing(server) as again:
        await until(lambda: server.watching >= 9)
        assert numbers(again.published_inventory) == [3]


async def test_a_mark_does_not_fall_while_its_watch_lags(server: FakeApiServer) -> None:
    async with auditing(server) as audit_:
        await until(lambda: numbers(audit_.published_inventory) == [2])
        server.hold_events(CONFIG_MAPS)
        publish(server, "gpu-0", "gpu-1", "gpu-2")
        await until(lambda: numbers(audit_.published_inventory) == [3])
        publish(server, "gpu-0", "gpu-1", "gpu-2", "gpu-3")
        await until(lambda: numbers(audit_.published_inventory) == [4])

        publish(server, "gpu-0", "gpu-1", "gpu-2")
        await audit_.sees_devices(3)
        server.put(NODES, document(node("node-2")))
        await asyncio.sleep(0.1)
        assert numbers(audit_.published_inventory) == [4]


async def test_a_deleted_mark_is_written_anew_from_the_inventory(server: FakeApiServer) -> None:
    async with auditing(server) as audit_:
        await until(lambda: numbers(audit_.published_inventory) == [2])
        publish(server, "gpu-0")
        await audit_.sees_devices(1)
        server.remove(CONFIG_MAPS, MARK, Settings().namespace)

        await until(lambda: numbers(audit_.published_inventory) == [1])


async def test_what_people_declare_is_left_to_them(server: FakeApiServer) -> None:
    declared = "classes: {gpu: {gpu.example.com: {devices: 99}}}"
    metadata = {"name": MARK, "namespace": Settings().namespace}
    server.put(CONFIG_MAPS, {"metadata": metadata, "data": {"declared": declared}})

    async with auditing(server) as audit_:
        await until(lambda: numbers(audit_.published_inventory) == [2])

    stored_object: Any = server.find(CONFIG_MAPS, MARK, Settings().namespace)
    assert stored_object["data"]["declared"] == declared


async def test_a_mark_that_cannot_be_written_is_written_later(server: FakeApiServer) -> None:
    def writes(call: Call) -> bool:
        return call.method == "PATCH" and "/configmaps" in call.path

    server.fail(503, times=2, matches=writes)

    async with auditing(server) as audit_:
        await until(lambda: numbers(audit_.published_inventory) == [2])


# --- what is stored -------------------------------------------------------------------------------


async def test_a_claim_that_can_never_fit_gets_one_event(server: FakeApiServer) -> None:
    server.put(RESOURCE_CLAIMS, document(claim(request(count=3), name="large")))

    async with auditing(server) as audit_:
        await until(lambda: len(audit_.events) == 1)
        await until(
            lambda: (
                audit_.counted(kind="ResourceClaim", severity="error", code="exceedsLargestNode")
                == 1
            )
        )
    async with auditing(server) as again:
        await until(
            lambda: (
                again.counted(kind="ResourceClaim", severity="error", code="exceedsLargestNode")
                == 1
            )
        )
        (event,) = again.events

    assert event["reason"] == "ExceedsLargestNode"
    assert event["regarding"]["name"] == "large"
    assert event["metadata"]["namespace"] == NAMESPACE
    assert event["note"].startswith("spec.devices.requests[0].exactly.count: count 3")
    assert "request 2 devices to fit" in event["note"]


async def test_an_object_that_was_repaired_is_no_longer_counted(server: FakeApiServer) -> None:
    server.put(RESOURCE_CLAIMS, document(claim(request(count=3), name="large")))
    labels = {"kind": "ResourceClaim", "severity": "error", "code": "exceedsLargestNode"}
    async with auditing(server) as audit_:
        await until(lambda: audit_.counted(**labels) == 1)

        server.put(RESOURCE_CLAIMS, document(allocated_claim(result("gpu-0"), name="large")))

        await until(lambda: audit_.counted(**labels) == 0)


async def test_events_are_bounded_and_the_rest_follows(server: FakeApiServer) -> None:
    for number in range(5):
        server.put(RESOURCE_CLAIMS, document(claim(request(count=3), name=f"large-{number}")))

    async with auditing(server, msgspec.structs.replace(FAST, max_audit_events=2)) as audit_:
        await until(lambda: 2 <= len(audit_.events) < 5)
        await until(lambda: len(audit_.events) == 5)


async def test_a_namespace_with_many_findings_takes_no_event_of_another(
    server: FakeApiServer,
) -> None:
    for number in range(20):
        large = claim(request(count=3), name=f"large-{number}", namespace="a-noisy")
        server.put(RESOURCE_CLAIMS, document(large))
    server.put(RESOURCE_CLAIMS, document(claim(request(count=3), name="large", namespace="quiet")))
    once = msgspec.structs.replace(FAST, audit_period=PositiveDuration(600.0), max_audit_events=2)

    async with auditing(server, once) as audit_:
        await until(lambda: len(audit_.events) == 2)

        regarding = [event["regarding"] for event in audit_.events]
        assert sorted(one["namespace"] for one in regarding) == ["a-noisy", "quiet"]


async def test_the_audit_writes_events_and_the_mark_and_nothing_else(
    server: FakeApiServer,
) -> None:
    server.put(RESOURCE_CLAIMS, document(claim(request(count=3), name="large")))

    async with auditing(server) as audit_:
        await until(lambda: bool(audit_.events) and numbers(audit_.published_inventory) == [2])

    written = {
        call.path.rpartition("?")[0] or call.path for call in server.calls if call.method != "GET"
    }
    assert {path.split("/")[-1] for path in written} <= {"events", "configmaps", MARK}


# --- reports --------------------------------------------------------------------------------------


def rules_of(report: Any) -> list[tuple[str, str]]:
    """Return kind of the object and rule of each result."""
    return [(result["resources"][0]["kind"], result["rule"]) for result in report["results"]]


async def test_findings_about_objects_are_reported_and_cured_ones_are_not(
    server: FakeApiServer,
) -> None:
    server.put(RESOURCE_CLAIMS, document(claim(request(count=3), name="large")))
    quota = {"name": "gpus", "namespace": NAMESPACE}
    server.put(
        RESOURCE_QUOTAS,
        {"metadata": quota, "spec": {"hard": {"requests.nvidia.com/gpu": "4"}}},
    )
    settings = msgspec.structs.replace(FAST, audit_reports=ReportFormat.OPEN_REPORTS)

    async with auditing(server, settings):
        # The first audit may come before the inventory is known.
        await until(lambda: any(len(report["results"]) == 2 for report in server.objects(REPORTS)))
        (report,) = server.objects(REPORTS)
        assert report["metadata"]["namespace"] == NAMESPACE
        assert rules_of(report) == [
            ("ResourceClaim", "exceedsLargestNode"),
            ("ResourceQuota", "claimsNotSeen"),
        ]
        assert report["results"][1]["resources"] == [
            {"apiVersion": "v1", "kind": "ResourceQuota", "namespace": NAMESPACE, "name": "gpus"}
        ]

        server.remove(RESOURCE_CLAIMS, "large", NAMESPACE)
        server.remove(RESOURCE_QUOTAS, "gpus", NAMESPACE)
        await until(lambda: server.objects(REPORTS) == [])


async def test_a_kind_that_cannot_be_listed_ends_no_audit_and_cures_nothing(
    server: FakeApiServer,
) -> None:
    """As without an answer of its conversion webhook."""
    quota = {"name": "gpus", "namespace": NAMESPACE}
    server.put(
        RESOURCE_QUOTAS,
        {"metadata": quota, "spec": {"hard": {"requests.nvidia.com/gpu": "4"}}},
    )
    labels = {"kind": "ResourceQuota", "severity": "warning", "code": "claimsNotSeen"}
    large = {"kind": "ResourceClaim", "severity": "error", "code": "exceedsLargestNode"}
    async with auditing(server) as audit_:
        await until(lambda: audit_.counted(**labels) == 1)

        server.fail(500, times=10**6, matches=lambda call: "resourcequotas" in call.path)
        server.put(RESOURCE_CLAIMS, document(claim(request(count=3), name="large")))

        await until(lambda: audit_.counted(**large) == 1)
        assert audit_.counted(**labels) == 1


async def test_an_object_that_a_bug_meets_costs_no_other_its_audit(
    server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meet_bug(audited_object: Any, context: Any) -> Any:
        if audited_object.metadata.name == "unlucky":
            raise ZeroDivisionError
        return findings_of(audited_object, context)

    monkeypatch.setattr("controllers.audit.controller.findings_of", meet_bug)
    for name in ("large", "unlucky", "wide"):
        server.put(RESOURCE_CLAIMS, document(claim(request(count=3), name=name)))
    large = {"kind": "ResourceClaim", "severity": "error", "code": "exceedsLargestNode"}
    failed = {"kind": "ResourceClaim", "severity": "warning", "code": "notEvaluated"}

    # Tracebacks of each audit take longer than the audit.
    with capture_logs():
        async with auditing(server) as audit_:
            await until(lambda: audit_.counted(**large) == 2)

            assert audit_.counted(**failed) == 1


async def test_a_quota_that_a_template_evades_is_reported_until_it_counts_the_class(
    server: FakeApiServer,
) -> None:
    quota = {"name": "gpus", "namespace": NAMESPACE}
    hard = {"requests.nvidia.com/gpu": "0"}
    server.put(RESOURCE_QUOTAS, {"metadata": quota, "spec": {"hard": hard}})
    any_device: Any = document(device_class())
    any_device["spec"] = {}
    server.put(DEVICE_CLASSES, any_device)
    template = document(claim(request(count=1), name="kept"))
    server.put(RESOURCE_CLAIM_TEMPLATES, {**template, "spec": {"spec": template["spec"]}})
    settings = msgspec.structs.replace(FAST, audit_reports=ReportFormat.OPEN_REPORTS)
    found = ("ResourceQuota", "templateNotCounted")

    async with auditing(server, settings):
        await until(lambda: any(found in rules_of(report) for report in server.objects(REPORTS)))

        counted = {f"{device_class().metadata.name}.deviceclass.resource.k8s.io/devices": "0"}
        server.put(RESOURCE_QUOTAS, {"metadata": quota, "spec": {"hard": {**hard, **counted}}})
        await until(
            lambda: not any(found in rules_of(report) for report in server.objects(REPORTS))
        )


async def test_quotas_that_may_not_be_listed_end_no_audit(server: FakeApiServer) -> None:
    template = document(claim(request(count=1), name="kept"))
    server.put(RESOURCE_CLAIM_TEMPLATES, {**template, "spec": {"spec": template["spec"]}})
    server.fail(403, times=10, matches=lambda call: "resourcequotas" in call.path)

    async with auditing(server) as audited:
        await until(lambda: audited.took_s > 0)


async def test_a_resource_that_a_node_offers_twice_is_in_the_report_of_the_cluster(
    server: FakeApiServer,
) -> None:
    mapping: Any = document(device_class())
    mapping["spec"]["extendedResourceName"] = "example.com/gpu"
    server.put(DEVICE_CLASSES, mapping)
    plugin_node: Any = document(node("node-1"))
    plugin_node["status"] = {"allocatable": {"example.com/gpu": "2"}}
    server.put(NODES, plugin_node)
    settings = msgspec.structs.replace(FAST, audit_reports=ReportFormat.OPEN_REPORTS)

    async with auditing(server, settings) as audit_:
        await until(
            lambda: any(
                ("Node", "duplicateResource") in rules_of(report)
                for report in server.objects(CLUSTER_REPORTS)
            )
        )
        await until(lambda: audit_.current_reports() == 1)


# --- device keys that nothing translates ----------------------------------------------------------


def pod(name: str, **limits: str) -> Document:
    return {
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]},
    }


async def test_device_keys_that_nothing_translates_are_counted(server: FakeApiServer) -> None:
    server.put(PODS, pod("mt-1", **{"mthreads.com/vgpu": "1"}))
    server.put(PODS, pod("mt-2", **{"mthreads.com/vgpu": "1", "cpu": "1"}))
    server.put(PODS, pod("translated", **{"nvidia.com/gpu": "1"}))
    server.put(PODS, pod("plain", cpu="1"))
    labels = {"kind": "Pod", "severity": "info", "code": "untranslatedDeviceKey"}

    async with auditing(server) as audit_:
        await until(lambda: audit_.counted(**labels) == 2)

        mapping: Any = document(device_class(name="amd"))
        mapping["spec"]["extendedResourceName"] = "mthreads.com/vgpu"
        server.put(DEVICE_CLASSES, mapping)

        await until(lambda: audit_.counted(**labels) == 0)


@pytest.mark.parametrize("resource", [name for family in FAMILIES for name in family.resources])
def test_a_pod_with_a_resource_of_any_family_is_kept(resource: str) -> None:
    name = resource.removesuffix("*") + ("x" if resource.endswith("*") else "")

    projected_keys = project_family_keys(
        msgspec.json.encode(pod("one", **{name: "1"})), VOCABULARIES
    )

    assert projected_keys is not None
    assert (name,) == projected_keys[0].keys


@pytest.mark.parametrize("annotation", [name for family in FAMILIES for name in family.annotations])
def test_a_pod_with_an_annotation_of_any_family_is_kept(annotation: str) -> None:
    name = annotation.removesuffix("*") + ("x" if annotation.endswith("*") else "")
    pod_ = pod("one", cpu="1")
    pod_["metadata"]["annotations"] = {name: "1"}

    projected_keys = project_family_keys(msgspec.json.encode(pod_), VOCABULARIES)

    assert projected_keys is not None
    assert (name,) == projected_keys[0].keys


def test_a_long_pod_takes_little_longer_than_its_decoding() -> None:
    pod_ = pod("one", cpu="1")
    pod_["metadata"]["annotations"] = {"text": "\1" * 1_400_000}  # Six bytes each, in JSON.
    raw = msgspec.json.encode(pod_)

    def cost_s(project: Callable[[bytes], object]) -> float:
        """Return the least CPU seconds of some calls."""
        costs = []
        for _ in range(5):
            began_s = time.thread_time()
            project(raw)
            costs.append(time.thread_time() - began_s)
        return min(costs)

    decoding_s = cost_s(lambda text: decode(text, Pod))
    # It took eleven times as long, since each domain of a device was searched for.
    assert cost_s(lambda text: project_family_keys(text, VOCABULARIES)) < 4 * decoding_s


# --- devices that are offered twice ---------------------------------------------------------------


async def test_resources_that_a_node_offers_twice_are_counted(server: FakeApiServer) -> None:
    offering: Any = document(node("node-1"))
    offering["status"] = {"allocatable": {"example.com/gpu": "2"}}
    server.put(NODES, offering)
    labels = {"kind": "Node", "severity": "warning", "code": "duplicateResource"}

    async with auditing(server) as audit_:
        await until(lambda: numbers(audit_.published_inventory) == [2])
        assert audit_.counted(**labels) == 0

        mapping: Any = document(device_class())
        mapping["spec"]["extendedResourceName"] = "example.com/gpu"
        server.put(DEVICE_CLASSES, mapping)

        await until(lambda: audit_.counted(**labels) == 1)


# --- in words -------------------------------------------------------------------------------------


def test_an_event_names_the_first_error_and_says_them_all() -> None:
    claim_ = claim(request())
    findings = (
        error(Code.EXCEEDS_LARGEST_NODE, FieldPath.of("spec", "a"), "too many", "ask for less"),
        warning(Code.DOES_NOT_FIT_NOW, FieldPath.of("spec"), "later"),
        error(Code.JOINTLY_INFEASIBLE, FieldPath.of("spec", "b"), "not together"),
    )

    event = event_of("ResourceClaim", claim_, findings)

    assert event is not None
    assert "ExceedsLargestNode" == event.reason
    assert "spec.a: too many; ask for less. spec.b: not together" == event.note
    assert f"ResourceClaim/{NAMESPACE}/{claim_.metadata.name}" == str(event.regarding)


def test_without_an_error_there_is_no_event() -> None:
    findings = (warning(Code.DOES_NOT_FIT_NOW, FieldPath.of("spec"), "later"),)

    assert event_of("ResourceClaim", claim(request()), findings) is None


def test_numbers_in_messages_do_not_make_another_event() -> None:
    def name(message: str, code: Code = Code.EXCEEDS_LARGEST_NODE) -> str:
        event = event_of("ResourceClaim", claim(), (error(code, FieldPath.of("spec"), message),))
        assert event is not None
        return event.name

    assert name("8 devices") == name("9 devices")
    assert name("8 devices") != name("8 devices", Code.JOINTLY_INFEASIBLE)


def test_objects_and_findings_are_counted_by_kind() -> None:
    wrong = error(Code.EXCEEDS_LARGEST_NODE, FieldPath.of("spec"), "no")

    tally_ = tally([("ResourceClaim", (wrong, wrong)), ("ResourceClaim", ()), ("DeviceClass", ())])

    assert tally_.objects == {"ResourceClaim": 2, "DeviceClass": 1}
    assert tally_.findings == {("ResourceClaim", "error", "exceedsLargestNode"): 2}


async def test_the_example_of_a_resource_that_is_offered_twice() -> None:
    example = WEBHOOK_EXAMPLES["duplicateResource"]
    settings = msgspec.structs.replace(FAST, audit_reports=ReportFormat.OPEN_REPORTS)
    async with FakeApiServer() as server:
        store(server, (*example.beside, example.document))
        async with auditing(server, settings):
            await until(lambda: bool(server.objects(CLUSTER_REPORTS)))

    (report,) = server.objects(CLUSTER_REPORTS)
    (result_,) = report["results"]
    assert (result_["rule"], result_["message"]) == ("duplicateResource", example.answer)
