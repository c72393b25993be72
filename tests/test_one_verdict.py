"""Webhook, check, simulate, `why` and observer about one pod: six answers that are always the same.

A device is in use, and a second one is free. Whether the pod gets that depends on who owns the driver, on
a policy that only the bridge evaluates, and on a feature gate without which a taint does not count.
"""

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import pytest
from prometheus_client import CollectorRegistry

from admission.pods import Decision
from admission.routing import Bridge, route_pod
from allocator.model.feature_gates import features_of
from answers.manifests.scheduler_views import routed_pods
from answers.model.cluster_state import build_state
from answers.model.kinds import STATE_KINDS
from answers.model.objects import decode_objects
from clusterstate.evaluator import RuleEvaluator
from clusterstate.settings import ValidationSettings
from findings.finding import Code
from kube import names
from kube.api.core import Pod
from kube.api.meta import convert
from kube.api.urls import (
    ALLOCATOR_OWNERSHIPS,
    DEVICE_CLASSES,
    DEVICE_COMPATIBILITY_POLICIES,
    EVENTS,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Resource,
)
from kube.manifests.dump import dump_yaml
from kube.manifests.source import SourceObject
from observer.metrics import ObserverMetrics
from observer.observer import Observer
from observer.settings import ObserverSettings
from process.model.durations import PositiveDuration
from process.serving.metrics import event_counter
from rules.context.context import Context
from rules.context.pod_scheduler import scheduler_of_pod
from rules.engine.engine import Target, validate
from testing import documents
from testing.command import drawbridge
from testing.documents import Document, api_object, ownership
from testing.fake_api_server import FakeApiServer, quick_informers, quick_recorder, running, until
from testing.simulated_cluster import DRIVER, claim, device_class, holding, node, slice_of, using

T = TypeVar("T")

GATE: Final = "DRADeviceTaints"
NAMESPACE: Final = "team"
POD: Final = using("trainer", "wanted")
POLICY: Final[Document] = api_object(
    "DeviceCompatibilityPolicy",
    "alone",
    spec={
        "driver": DRIVER,
        "scope": "Pool",
        "rules": [{"name": "alone", "compatibleOnlyWith": {"cel": {"expression": "false"}}}],
    },
)
OWNERSHIP: Final[Document] = ownership(documents.owned(name=DRIVER))
TAINTED: Final = {"name": "gpu-1", "taints": [{"key": "worn", "effect": "NoSchedule"}]}
OBJECTS: Final[tuple[tuple[Resource, Document], ...]] = (
    (NODES, node("node-a")),
    (DEVICE_CLASSES, device_class()),
    (RESOURCE_SLICES, slice_of("node-a", {"name": "gpu-0"}, TAINTED)),
    (RESOURCE_CLAIMS, holding("held", "gpu-0", "node-a")),
    (RESOURCE_CLAIMS, claim("wanted")),
    (NAMESPACES, api_object("Namespace", NAMESPACE)),
)


class State(NamedTuple):
    """A state of the cluster; with the gate off, the taint does not count."""

    owned: bool
    policy: bool
    gate: bool

    @property
    def fits(self) -> bool:
        """The truth: the free device is kept by its taint, or by the policy of the bridge."""
        return not self.gate and not (self.owned and self.policy)

    @property
    def objects(self) -> Iterator[tuple[Resource, Document]]:
        yield from OBJECTS
        if self.owned:
            yield ALLOCATOR_OWNERSHIPS, OWNERSHIP
        if self.policy:
            yield DEVICE_COMPATIBILITY_POLICIES, POLICY

    @property
    def gates(self) -> Mapping[str, bool]:
        return {GATE: self.gate}

    @property
    def flags(self) -> tuple[str, ...]:
        return ("--feature-gates", f"{GATE}={'true' if self.gate else 'false'}", "-o", "json")

    @property
    def routed_pod(self) -> Document:
        """The pod as the webhook leaves it."""
        scheduler = names.SCHEDULER_NAME if self.owned else names.DEFAULT_SCHEDULER_NAME
        unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        return {
            **POD,
            "metadata": {**POD["metadata"], "uid": "1"},
            "spec": {**POD["spec"], "schedulerName": scheduler},
            "status": {"phase": "Pending", "conditions": [unscheduled]},
        }


STATES: Final = [State(*values) for values in product((False, True), repeat=3)]


@pytest.mark.parametrize("state", STATES, ids=str)
async def test_the_six_give_one_verdict(state: State, tmp_path: Path) -> None:
    async with FakeApiServer() as server:
        for resource, document in state.objects:
            server.put(resource, document)

        verdicts = {
            "webhook": await webhook_verdict(server, state),
            "check": check_verdict(state, tmp_path),
            "simulate": simulate_verdict(state, tmp_path),
            "why": why_verdict(state, tmp_path, state.routed_pod),
            "why of a new pod": why_verdict(state, tmp_path, POD),
            "observer": await observer_verdict(server, state),
        }

    assert verdicts == dict.fromkeys(verdicts, state.fits)


async def webhook_verdict(server: FakeApiServer, state: State) -> bool:
    """Return True if the webhook has no warning once it has routed the pod."""
    return await evaluated(server, state.gates, fits_now)


async def evaluated(
    server: FakeApiServer, gates: Mapping[str, bool], rules: Callable[[Context], T]
) -> T:
    """Evaluate with the cluster as the webhook knows it."""
    settings = ValidationSettings(feature_gates=gates)
    async with server.client() as client:
        informers = quick_informers(client)
        evaluator = RuleEvaluator(informers, names.NAMESPACE, settings)
        async with running(informers.run, evaluator.run):
            await evaluator.wait_ready()
            await until(lambda: evaluator.knows_ownership)
            return await evaluator.evaluate(rules, tenant=NAMESPACE)


def fits_now(context: Context) -> bool:
    pod = convert(POD, Pod)
    answer = route_pod(pod, NAMESPACE, context, Bridge(names.SCHEDULER_NAME))
    assert not answer.findings
    if answer.decision is Decision.ROUTED:
        pod = convert({**POD, "spec": {**POD["spec"], "schedulerName": names.SCHEDULER_NAME}}, Pod)
    target = Target(view=pod, raw=POD, metadata=pod.metadata, namespace=NAMESPACE)
    return Code.DOES_NOT_FIT_NOW not in {finding.code for finding in validate(target, context)}


def command(state: State, folder: Path, *call: str, pod: Document | None = None) -> Any:
    snapshot = folder / "cluster.yaml"
    snapshot.write_text(dump_yaml([document for _, document in state.objects]))
    stdin = dump_yaml([pod or POD])
    result = drawbridge(*call, "-f", "-", "--snapshot", snapshot, *state.flags, stdin=stdin)
    assert result.exit_code in (0, 1), result.output
    return json.loads(result.stdout)


def check_verdict(state: State, folder: Path) -> bool:
    codes = {finding["code"] for finding in command(state, folder, "check")["findings"]}
    assert codes <= {"doesNotFitNow"}
    return not codes


def simulate_verdict(state: State, folder: Path) -> bool:
    (pod,) = command(state, folder, "simulate")["pods"]
    return pod["node"] is not None


def why_verdict(state: State, folder: Path, pod: Document) -> bool:
    answer = command(state, folder, "why", "pod", "trainer", "-n", NAMESPACE, pod=pod)
    assert not answer["fenced"]
    (pod,) = answer["simulation"]["pods"]
    return pod["node"] is not None


async def observer_verdict(server: FakeApiServer, state: State) -> bool:
    """Return True if the observer, here for pods of every scheduler, has no event about the pod."""
    async with observing(server, state) as registry:
        server.put(PODS, state.routed_pod)
        if not state.fits:
            await until(lambda: bool(server.objects(EVENTS)))
        name = "drawbridge_observer_explanation_duration_seconds_count"
        await until(lambda: (registry.get_sample_value(name) or 0) > 0)
        return not server.objects(EVENTS)


@asynccontextmanager
async def observing(server: FakeApiServer, state: State) -> AsyncIterator[CollectorRegistry]:
    settings = ObserverSettings(
        initial_delay=PositiveDuration(0.01),
        reevaluation_period=PositiveDuration(0.01),
        cpu_fraction=0.99,
        new_pod_cpu_fraction=0.99,
        events_per_second=1000,
        feature_gates=state.gates,
        silent_for_schedulers=(),
    )
    assert settings.features() == features_of(state.gates)
    registry = CollectorRegistry()
    async with server.client() as client:
        informers = quick_informers(client)
        recorder = quick_recorder(client, count=event_counter(registry), per_second=1000)
        observer = Observer(informers, recorder, settings, ObserverMetrics(registry))
        async with running(informers.run, recorder.run, observer.run):
            await until(lambda: not observer.check())
            yield registry


OWNED: Final = State(owned=True, policy=False, gate=False)


SHARER: Final = using("sharer", "held")
MAPPED_KEY: Final = "example.com/mapped"
MAPPING: Final = documents.device_class("mapped", extendedResourceName=MAPPED_KEY)
SHARER_WITH_KEY: Final = using(
    "sharer",
    "held",
    containers=[{"name": "main", "image": "main", "resources": {"limits": {MAPPED_KEY: "1"}}}],
)


@pytest.mark.parametrize("owned", [False, True])
@pytest.mark.parametrize("pod", [SHARER, SHARER_WITH_KEY])
async def test_a_pod_whose_claim_is_allocated_has_one_scheduler(owned: bool, pod: Document) -> None:
    """The claim's only driver is owned; kube-scheduler makes a claim for a key that a class maps."""
    stored = [
        *State(owned=owned, policy=False, gate=False).objects,
        (DEVICE_CLASSES, MAPPING),
    ]
    created_pod = convert(pod, Pod)
    expected = names.SCHEDULER_NAME if owned and pod is SHARER else ""

    def of_webhook(context: Context) -> set[str]:
        bridge = Bridge(names.SCHEDULER_NAME)
        answer = route_pod(created_pod, NAMESPACE, context, bridge)
        assert not answer.findings
        of_routing = bridge.scheduler if answer.decision is Decision.ROUTED else ""
        return {of_routing, scheduler_of_pod(created_pod, NAMESPACE, context)}

    async with FakeApiServer() as server:
        for resource, document in stored:
            server.put(resource, document)
        schedulers = await evaluated(server, {}, of_webhook)

    # As simulate, why and quota ask.
    sources = [SourceObject(document=document, source="", line=0) for _, document in stored]
    state = build_state(decode_objects(sources, STATE_KINDS, NAMESPACE)[0])
    (routed,) = routed_pods([created_pod], state).pods
    assert schedulers | {routed.spec.scheduler_name} == {expected}


def test_a_pending_pod_of_another_scheduler_waits_for_the_fence(tmp_path: Path) -> None:
    unrouted = {**OWNED.routed_pod, "spec": {**POD["spec"], "schedulerName": "default-scheduler"}}

    answer = command(OWNED, tmp_path, "why", "pod", "trainer", "-n", NAMESPACE, pod=unrouted)

    assert answer["fenced"] == [DRIVER]


def test_check_says_what_the_routing_says(tmp_path: Path) -> None:
    foreign = {**POD, "spec": {**POD["spec"], "schedulerName": "another"}}

    findings = command(OWNED, tmp_path, "check", pod=foreign)["findings"]

    assert [(finding["code"], finding["path"]) for finding in findings] == [
        ("driverOwnedByBridge", "spec.schedulerName")
    ]


def test_a_named_scheduler_evaluates_policies_in_simulate(tmp_path: Path) -> None:
    state = State(owned=False, policy=True, gate=False)
    aware = {**POD, "spec": {**POD["spec"], "schedulerName": "aware"}}
    flags = ("--policy-aware-scheduler", "aware")

    assert simulate_verdict(state, tmp_path)
    (pod,) = command(state, tmp_path, "simulate", *flags, pod=aware)["pods"]
    assert pod["node"] is None


@pytest.mark.parametrize("verb", ["why", "simulate"])
@pytest.mark.parametrize("is_of_driver", [True, False])
def test_an_ignored_policy_is_reported_for_pods_of_its_driver(
    verb: str, is_of_driver: bool, tmp_path: Path
) -> None:
    state = State(owned=False, policy=True, gate=False)
    other = POLICY | {"spec": POLICY["spec"] | {"driver": "nic.example.com"}}
    objects = [
        other if document is POLICY and not is_of_driver else document
        for _, document in state.objects
    ]
    snapshot = tmp_path / "cluster.yaml"
    snapshot.write_text(dump_yaml(objects))

    result = drawbridge(
        verb, "-f", "-", "--snapshot", snapshot, *state.flags, stdin=dump_yaml([POD])
    )

    note = "is ignored for pods of scheduler default-scheduler"
    assert is_of_driver == (note in result.stderr)


@pytest.mark.parametrize("is_of_driver", [True, False])
def test_a_policy_is_evaluated_for_claims_of_its_driver(is_of_driver: bool, tmp_path: Path) -> None:
    state = State(owned=False, policy=True, gate=False)
    other = POLICY | {"spec": POLICY["spec"] | {"driver": "nic.example.com"}}
    objects = [
        other if document is POLICY and not is_of_driver else document
        for _, document in state.objects
    ]
    snapshot = tmp_path / "cluster.yaml"
    snapshot.write_text(dump_yaml(objects))

    result = drawbridge(
        "simulate",
        "-f",
        "-",
        "--snapshot",
        snapshot,
        *state.flags,
        stdin=dump_yaml([claim("other")]),
    )

    assert is_of_driver == ("is evaluated; kube-scheduler ignores it" in result.stderr)


def test_pods_of_two_schedulers_share_what_is_in_use(tmp_path: Path) -> None:
    """The first takes the free device although the policy of the other forbids it; then none is left."""
    state = State(owned=False, policy=True, gate=False)
    later = {
        **using("later", "second"),
        "spec": {**using("later", "second")["spec"], "schedulerName": "aware"},
    }
    stdin = dump_yaml([POD, later, claim("second")])
    snapshot = tmp_path / "cluster.yaml"
    snapshot.write_text(dump_yaml([document for _, document in state.objects]))

    result = drawbridge(
        "simulate", "-f", "-", "--snapshot", snapshot, "--policy-aware-scheduler", "aware",
        *state.flags, stdin=stdin,
    )  # fmt: skip

    pods = json.loads(result.stdout)["pods"]
    assert [(pod["name"], pod["node"]) for pod in pods] == [("trainer", "node-a"), ("later", None)]
    assert "is ignored for pods of scheduler default-scheduler" in result.stderr
