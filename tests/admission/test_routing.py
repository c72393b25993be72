"""The scheduler of a pod, by the drivers of its claims."""

from typing import Any

import pytest

from admission.pods import Answer, Decision
from admission.routing import Bridge, route_pod
from findings.finding import Severity
from kube.api.core import Pod
from kube.api.extended_resources import IMPLICIT_PREFIX
from kube.api.meta import convert
from kube.api.resource import DeviceClaim
from kube.jsonpatch import Operation, add, remove
from kube.names import QUOTA_GATE, SCHEDULER_NAME
from rules.context.context import Context
from rules.context.pod_scheduler import scheduler_of_pod
from testing.documents import EXAMPLE, NVIDIA, device, exactly, resource_slice
from testing.rule_contexts import GPUS, context, named_class

NAMESPACE = "team"
ANY = "any.example.com"
BOTH = "both.example.com"
NICS = {"name": "nics", "generation": 1, "resourceSliceCount": 1}
OTHER_DEVICE = resource_slice(device("nic-0"), name="nics", driver=NVIDIA, pool=NICS)
CLASSES = (
    named_class(EXAMPLE, f"device.driver == '{EXAMPLE}'"),
    named_class(NVIDIA, f"device.driver == '{NVIDIA}'"),
    named_class("unpublished", "device.driver == 'unpublished.example.com'"),
    named_class(BOTH, f"device.driver in ['{EXAMPLE}', 'unpublished.example.com']"),
    named_class(ANY),
)


def claim(device_class: str) -> DeviceClaim:
    return convert({"requests": [exactly(deviceClassName=device_class)]}, DeviceClaim)


def cluster(*owned: str, **more: Any) -> Context:
    """A cluster with devices of two drivers, and a template and a claim for each class."""
    claims = {(NAMESPACE, known.metadata.name): claim(known.metadata.name) for known in CLASSES}
    fields = {
        "classes": {known.metadata.name: known for known in CLASSES},
        "templates": claims,
        "claims": claims,
        "owned_drivers": frozenset(owned),
    }
    return context(GPUS, OTHER_DEVICE, **fields | more)


def allocated(*drivers: str) -> dict[tuple[str, str], frozenset[str]]:
    """Allocated claims, each named by the driver of its devices."""
    return {(NAMESPACE, driver): frozenset({driver}) for driver in drivers}


def pod(*templates: str, claims: tuple[str, ...] = (), **spec: Any) -> Pod:
    entries = [
        {"name": f"template-{name}", "resourceClaimTemplateName": name} for name in templates
    ]
    entries += [{"name": f"claim-{name}", "resourceClaimName": name} for name in claims]
    return convert({"metadata": {"name": "pod"}, "spec": {"resourceClaims": entries, **spec}}, Pod)


def routed(pod: Pod, known: Context) -> Answer:
    return route_pod(pod, NAMESPACE, known, Bridge(SCHEDULER_NAME))


ROUTED = Decision.ROUTED
LEFT = Decision.UNTOUCHED


@pytest.mark.parametrize(
    ("name", "created_pod", "owned", "decision"),
    [
        ("a template of an owned driver", pod(EXAMPLE), [EXAMPLE], ROUTED),
        ("a claim of an owned driver", pod(claims=(EXAMPLE,)), [EXAMPLE], ROUTED),
        ("the default scheduler, as the API server writes it",
         pod(EXAMPLE, schedulerName="default-scheduler"), [EXAMPLE], ROUTED),
        ("two owned drivers", pod(EXAMPLE, NVIDIA), [EXAMPLE, NVIDIA], ROUTED),
        ("a driver without devices that the class names",
         pod("unpublished"), ["unpublished.example.com"], ROUTED),
        ("a class of every driver, all owned", pod(ANY), [EXAMPLE, NVIDIA], ROUTED),
        ("another driver is owned", pod(EXAMPLE), [NVIDIA], LEFT),
        ("nothing is owned", pod(EXAMPLE), [], LEFT),
        ("no claims", pod(), [EXAMPLE], LEFT),
        ("routed already", pod(EXAMPLE, schedulerName=SCHEDULER_NAME), [EXAMPLE], LEFT),
        ("bound to a node by whoever made it", pod(EXAMPLE, nodeName="node"), [EXAMPLE], LEFT),
    ],
    ids=str,
)  # fmt: skip
def test_a_pod_is_routed_or_left(
    name: str, created_pod: Pod, owned: list[str], decision: Decision
) -> None:
    answer = routed(created_pod, cluster(*owned))

    assert (answer.decision, answer.findings) == (decision, ()), name
    assert bool(answer.operations) == (decision is ROUTED)


def test_the_patch_sets_the_scheduler_and_nothing_else() -> None:
    answer = route_pod(pod(EXAMPLE), NAMESPACE, cluster(EXAMPLE), Bridge("mine"))

    assert answer.operations == (add("/spec/schedulerName", "mine"),)


TAINT = "example.com/bridge"
TOLERATION = {"key": TAINT, "operator": "Exists", "effect": "NoSchedule"}
OTHER_TOLERATION = {"key": "node.kubernetes.io/not-ready", "operator": "Exists"}


@pytest.mark.parametrize(
    ("name", "tolerations", "added"),
    [
        ("no field", None, [add("/spec/tolerations", [TOLERATION])]),
        ("none", [], [add("/spec/tolerations", [TOLERATION])]),
        ("another one", [OTHER_TOLERATION], [add("/spec/tolerations/-", TOLERATION)]),
        ("of another effect", [TOLERATION | {"effect": "NoExecute"}],
         [add("/spec/tolerations/-", TOLERATION)]),
        ("of one value", [{"key": TAINT, "value": "a"}], [add("/spec/tolerations/-", TOLERATION)]),
        ("the same", [OTHER_TOLERATION, TOLERATION], []),
        ("of every effect", [{"key": TAINT, "operator": "Exists"}], []),
        ("of everything", [{"operator": "Exists"}], []),
    ],
)  # fmt: skip
def test_a_routed_pod_tolerates_the_taint_of_the_bridges_nodes(
    name: str, tolerations: Any, added: list[Operation]
) -> None:
    created_pod = pod(EXAMPLE, tolerations=tolerations)

    answer = route_pod(created_pod, NAMESPACE, cluster(EXAMPLE), Bridge(SCHEDULER_NAME, TAINT))

    assert answer.operations == (add("/spec/schedulerName", SCHEDULER_NAME), *added), name


def test_a_routed_pod_loses_the_gate_of_quotas_and_no_other() -> None:
    """Policies add it before webhooks are called, and nobody would remove it later."""
    gates = [{"name": "example.com/other"}, {"name": QUOTA_GATE}]

    answer = routed(pod(EXAMPLE, schedulingGates=gates), cluster(EXAMPLE))

    assert answer.operations == (
        add("/spec/schedulerName", SCHEDULER_NAME),
        remove("/spec/schedulingGates/1"),
    )
    foreign = pod(EXAMPLE, schedulingGates=gates, schedulerName="theirs")
    assert routed(foreign, cluster(EXAMPLE)).operations == ()


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
        {"containers": [{"resources": {"requests": {"nvidia.com/gpu": "1"}}}]},
        {"containers": [], "initContainers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
        {"containers": [{"resources": {"limits": {f"{IMPLICIT_PREFIX}gpu": "1"}}}]},
    ],
)
def test_a_routed_pod_with_keys_of_a_device_plugin_keeps_the_gate(spec: Any) -> None:
    """It lost the gate, and got devices of the plugin past its quota."""
    created_pod = pod(EXAMPLE, schedulingGates=[{"name": QUOTA_GATE}], **spec)

    answer = routed(created_pod, cluster(EXAMPLE))

    assert answer.operations == (add("/spec/schedulerName", SCHEDULER_NAME),)


def test_a_routed_pod_with_cpu_alone_loses_the_gate() -> None:
    requests = {"cpu": "1", "memory": "1Gi", "hugepages-2Mi": "2Mi", "ephemeral-storage": "1Gi"}
    containers = [{"resources": {"requests": requests}}]
    created_pod = pod(EXAMPLE, schedulingGates=[{"name": QUOTA_GATE}], containers=containers)

    answer = routed(created_pod, cluster(EXAMPLE))

    assert remove("/spec/schedulingGates/0") in answer.operations


def test_a_pod_that_is_not_routed_gets_no_toleration() -> None:
    answer = route_pod(pod(NVIDIA), NAMESPACE, cluster(EXAMPLE), Bridge(SCHEDULER_NAME, TAINT))

    assert answer == Answer(decision=LEFT)


@pytest.mark.parametrize(
    ("name", "created_pod"),
    [
        ("in two claims", pod(EXAMPLE, NVIDIA)),
        ("in one class of every driver", pod(ANY)),
    ],
)
def test_owned_and_other_drivers_together_are_refused(name: str, created_pod: Pod) -> None:
    answer = routed(created_pod, cluster(EXAMPLE))

    assert answer.decision is Decision.REFUSED, name
    (finding,) = answer.findings
    assert (finding.code.value, str(finding.path)) == (
        "mixedDriverOwnership",
        "spec.resourceClaims",
    )
    assert f'"{EXAMPLE}", which the bridge allocates' in finding.message
    assert "drawbridge bridge own" in finding.fix


def test_what_is_allocated_already_does_not_count_beside_open_claims() -> None:
    known = cluster(EXAMPLE, allocated_claims=allocated(NVIDIA))
    snapshot = cluster(EXAMPLE, allocated_claims=allocated(EXAMPLE))

    assert routed(pod(EXAMPLE, claims=(NVIDIA,)), known).decision is ROUTED
    assert routed(pod(NVIDIA, claims=(EXAMPLE,)), snapshot) == Answer(decision=LEFT)


TWO = "two"
"""An allocated claim with devices of both drivers."""
OWNED_CLAIM = pod(claims=(EXAMPLE,))


@pytest.mark.parametrize(
    ("name", "created_pod", "owned", "decision"),
    [
        ("one claim of an owned driver", OWNED_CLAIM, [EXAMPLE], ROUTED),
        ("the default scheduler, as the API server writes it",
         pod(claims=(EXAMPLE,), schedulerName="default-scheduler"), [EXAMPLE], ROUTED),
        ("two, of two owned drivers", pod(claims=(EXAMPLE, NVIDIA)), [EXAMPLE, NVIDIA], ROUTED),
        ("one of two owned drivers", pod(claims=(TWO,)), [EXAMPLE, NVIDIA], ROUTED),
        ("beside one without devices", pod(claims=(EXAMPLE, "empty")), [EXAMPLE], ROUTED),
        ("a key that no class maps", pod(claims=(EXAMPLE,), containers=[
            {"resources": {"limits": {"example.com/plugin": "1"}}}]), [EXAMPLE], ROUTED),
        ("of another driver", pod(claims=(NVIDIA,)), [EXAMPLE], LEFT),
        ("nothing is owned", OWNED_CLAIM, [], LEFT),
        ("two, one of another driver", pod(claims=(EXAMPLE, NVIDIA)), [EXAMPLE], LEFT),
        ("one with devices of another driver, too", pod(claims=(TWO,)), [EXAMPLE], LEFT),
        ("one without devices", pod(claims=("empty",)), [EXAMPLE], LEFT),
        ("beside an open claim of another driver", pod(NVIDIA, claims=(EXAMPLE,)), [EXAMPLE], LEFT),
        ("beside an open claim that requests nothing", pod(claims=(EXAMPLE, "nothing")), [EXAMPLE], LEFT),
        ("more claims than are inspected", pod(claims=(EXAMPLE,) * 65), [EXAMPLE], LEFT),
        ("another scheduler by name", pod(claims=(EXAMPLE,), schedulerName="volcano"), [EXAMPLE], LEFT),
        ("routed already", pod(claims=(EXAMPLE,), schedulerName=SCHEDULER_NAME), [EXAMPLE], LEFT),
        ("the bridge by name, for another driver",
         pod(claims=(NVIDIA,), schedulerName=SCHEDULER_NAME), [EXAMPLE], LEFT),
        ("bound already", pod(claims=(EXAMPLE,), nodeName="node"), [EXAMPLE], LEFT),
        ("a key that a class maps, for which kube-scheduler makes a claim",
         pod(claims=(EXAMPLE,), containers=[{"resources": {"limits": {"example.com/mapped": "1"}}}]),
         [EXAMPLE], LEFT),
    ],
    ids=str,
)  # fmt: skip
def test_a_pod_whose_claims_are_all_allocated_is_routed_if_all_drivers_are_owned(
    name: str, created_pod: Pod, owned: list[str], decision: Decision
) -> None:
    """kube-scheduler writes such a claim for each of its pods, and begins anew at each conflict."""
    known = cluster(
        *owned,
        claims={(NAMESPACE, EXAMPLE): claim(EXAMPLE), (NAMESPACE, "nothing"): DeviceClaim()},
        allocated_claims=allocated(EXAMPLE, NVIDIA)
        | {(NAMESPACE, TWO): frozenset({EXAMPLE, NVIDIA}), (NAMESPACE, "empty"): frozenset()},
        extended_resources={"example.com/mapped": NVIDIA},
    )

    answer = routed(created_pod, known)

    assert (answer.decision, answer.findings) == (decision, ()), name
    assert bool(answer.operations) == (decision is ROUTED)
    scheduler = SCHEDULER_NAME if decision is ROUTED else created_pod.spec.scheduler_name
    assert scheduler_of_pod(created_pod, NAMESPACE, known) == scheduler


def test_an_allocated_claim_beside_one_that_is_unknown_is_left_with_a_warning() -> None:
    answer = routed(
        pod(claims=(EXAMPLE, "later")), cluster(EXAMPLE, allocated_claims=allocated(EXAMPLE))
    )

    assert answer.decision is Decision.VALIDATED
    assert ["driverOwnershipUnknown"] == [finding.code.value for finding in answer.findings]


def test_a_pod_that_is_routed_for_allocated_claims_tolerates_the_taint_and_loses_the_gate() -> None:
    """Its devices are charged already. Keys of a device plugin are not, so with some it keeps the gate."""
    gates = [{"name": QUOTA_GATE}]
    known = cluster(EXAMPLE, allocated_claims=allocated(EXAMPLE))
    bridge = Bridge(SCHEDULER_NAME, TAINT)
    with_keys = [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]

    answers = [
        route_pod(pod(claims=(EXAMPLE,), schedulingGates=gates, **more), NAMESPACE, known, bridge)
        for more in ({}, {"containers": with_keys})
    ]

    routing = (add("/spec/schedulerName", SCHEDULER_NAME), add("/spec/tolerations", [TOLERATION]))
    assert [answer.operations for answer in answers] == [
        (*routing, remove("/spec/schedulingGates/0")),
        routing,
    ]


@pytest.mark.parametrize(
    ("name", "created_pod", "owned", "expected"),
    [
        ("a claim that does not exist", pod(claims=("later",)), [EXAMPLE],
         'ResourceClaim "later" does not exist yet'),
        ("a template that does not exist", pod("later"), [EXAMPLE],
         'ResourceClaimTemplate "later" does not exist yet'),
        ("an unpublished driver beside an owned one", pod(BOTH), [EXAMPLE],
         "no scheduler allocates both"),
        ("another scheduler by name", pod(EXAMPLE, schedulerName="volcano"), [EXAMPLE],
         'scheduler "volcano" cannot allocate'),
        ("our scheduler for what it does not own",
         pod(EXAMPLE, schedulerName=SCHEDULER_NAME), [NVIDIA], "which it does not own"),
    ],
)  # fmt: skip
def test_what_cannot_be_routed_is_left_with_a_warning(
    name: str, created_pod: Pod, owned: list[str], expected: str
) -> None:
    answer = routed(created_pod, cluster(*owned))

    assert not answer.operations, name
    (finding,) = answer.findings
    assert expected in finding.message
    assert finding.severity is Severity.WARNING


def test_a_missing_claim_beside_an_owned_one_is_routed_with_a_warning() -> None:
    answer = routed(pod(EXAMPLE, claims=("later",)), cluster(EXAMPLE))

    assert answer.decision is ROUTED
    assert ["driverOwnershipUnknown"] == [finding.code.value for finding in answer.findings]


def test_a_class_without_devices_and_names_is_unknown() -> None:
    known = context(classes={ANY: named_class(ANY)}, owned_drivers=frozenset({EXAMPLE}))
    known = cluster(EXAMPLE, classes=known.classes, inventory=known.inventory)

    answer = routed(pod(ANY), known)

    assert answer.decision is Decision.VALIDATED
    assert ["driverOwnershipUnknown"] == [finding.code.value for finding in answer.findings]


def test_hostile_names_are_quoted_and_cut() -> None:
    hostile = 'x"\n\x1b[2J' + "y" * 9000

    (finding,) = routed(pod(claims=(hostile,)), cluster(EXAMPLE)).findings

    assert "\n" not in finding.message
    assert "\x1b" not in finding.message
    assert len(finding.message) < 300
