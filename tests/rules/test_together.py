"""Contradictions between objects: slices of a pool, pods and claims, kinds and classes."""

from typing import Any, NamedTuple

import msgspec
import pytest

from allocator.model.scheduler_support import SchedulerSupport
from kube.api.meta import convert
from kube.api.policy import DeviceCompatibilityPolicy
from kube.names import REQUEST_ANNOTATION
from rules.context.context import Context
from testing.documents import (
    EXAMPLE,
    NVIDIA,
    NVIDIA_CONFIG,
    Document,
    attributes,
    cel,
    claim,
    config,
    device,
    exactly,
    first,
    gpu_config,
    policy,
    resource_slice,
    sub,
)
from testing.rule_cases import finding_lines, findings_of, pod
from testing.rule_contexts import GPUS, context, with_templates


class Case(NamedTuple):
    name: str
    document: Document
    there: Context
    expected_findings: tuple[str, ...] = ()


# --- slices of a pool -----------------------------------------------------------------------------

_COUNTERS: Document = {"sharedCounters": [{"name": "set", "counters": {"sm": {"value": "100"}}}]}


def consuming(counter_set: str, counter: str = "sm") -> Document:
    consumption = {"counterSet": counter_set, "counters": {counter: {"value": "1"}}}
    return device(consumesCounters=[consumption])


def second(*devices: Document, count: int = 2, generation: int = 1, **spec: Any) -> Document:
    """Return another slice of the pool."""
    return resource_slice(*devices, name="second", count=count, generation=generation, **spec)


_ZONE = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]}

SLICES = (
    Case("two halves", resource_slice(device(), count=2), context(second(device("gpu-1")))),
    Case(
        "two numbers of slices",
        resource_slice(device(), count=3),
        context(second(device("gpu-1"))),
        ("error sliceCountMismatch spec.pool.resourceSliceCount",),
    ),
    Case(
        "two numbers of slices in a running cluster, where one comes after the other",
        resource_slice(device(), count=3),
        context(second(device("gpu-1")), applied_together=False),
        ("warning sliceCountMismatch spec.pool.resourceSliceCount",),
    ),
    Case(
        "two numbers of slices in two generations",
        resource_slice(device(), count=1, generation=2),
        context(second(device("gpu-1"))),
    ),
    Case(
        "a device in two slices",
        resource_slice(device(), count=2),
        context(second(device())),
        ("error duplicateDevice spec.devices[0].name",),
    ),
    Case(
        "a device in two slices of two nodes",
        resource_slice(device(), count=2),
        context(second(device(), nodeName="node-b")),
    ),
    Case(
        "a device in two slices of some nodes",
        resource_slice(device(), count=2, nodeSelector=_ZONE),
        context(second(device(), nodeSelector=_ZONE)),
        ("error duplicateDevice spec.devices[0].name",),
    ),
    Case("itself, published before", resource_slice(device()), context(resource_slice(device()))),
    Case("counters", resource_slice(consuming("set"), count=2), context(second(**_COUNTERS))),
    Case(
        "a counter set that the pool has not",
        resource_slice(consuming("sets"), count=2),
        context(second(**_COUNTERS)),
        ("error unknownCounterSet spec.devices[0].consumesCounters[0].counterSet",),
    ),
    Case(
        "a counter that the set has not",
        resource_slice(consuming("set", "smx"), count=2),
        context(second(**_COUNTERS)),
        ("error unknownCounterSet spec.devices[0].consumesCounters[0].counters[smx]",),
    ),
    Case(
        "a counter set that may still come",
        resource_slice(consuming("set"), count=2),
        context(),
    ),
)

# --- pods and claims ------------------------------------------------------------------------------

_GPU = {"name": "gpu", "resourceClaimTemplateName": "gpu"}


def using(request: str) -> Document:
    return pod(_GPU, uses=({"name": "gpu", "request": request},))


def _later(**requests: tuple[str, ...]) -> Context:
    """Return a cluster without all claims and templates: some may be created a moment later."""
    return msgspec.structs.replace(with_templates(**requests), has_all_claims=False)


PODS = (
    Case("a request of the template", using("gpu"), with_templates(gpu=("gpu", "nic"))),
    Case(
        "a request that the template has not",
        using("gup"),
        with_templates(gpu=("gpu",)),
        ("error unknownRequest spec.containers[0].resources.claims[0].request",),
    ),
    Case("a request of a template that is not known", using("gup"), context()),
    Case(
        "a template that is not there",
        using("gpu"),
        with_templates(),
        ("warning claimMissing spec.resourceClaims[0].resourceClaimTemplateName",),
    ),
    Case(
        "a template with a misspelt name, where it may come later",
        pod({"name": "gpu", "resourceClaimTemplateName": "shraed"}),
        _later(shared=("gpu",)),
        ("warning claimMissing spec.resourceClaims[0].resourceClaimTemplateName",),
    ),
    Case(
        "a template of a series, where it may come later",
        pod({"name": "gpu", "resourceClaimTemplateName": "shared-2"}),
        _later(**{"shared-1": ("gpu",)}),
    ),
    Case(
        "a claim that is not there",
        pod({"name": "gpu", "resourceClaimName": "gpu"}),
        with_templates(),
        ("warning claimMissing spec.resourceClaims[0].resourceClaimName",),
    ),
)

# --- variables of the container beside claims of owned drivers ------------------------------------


def _exposing(value: str, *claims: str) -> Document:
    """Return a pod with a claim, and a container with the variable that uses some claims."""
    document = pod(_GPU, uses=tuple({"name": name} for name in claims))
    (container,) = document["spec"]["containers"]
    container["env"] = [
        {"name": "MODE", "value": "fast"},
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": value},
    ]
    return document


def _owning(*drivers: str) -> Context:
    there = with_templates(gpu=("gpu",))
    return msgspec.structs.replace(there, owned_drivers=frozenset(drivers))


_EXPOSED = ("warning ownedDevicesExposed spec.containers[0].env[1]",)

VARIABLES = (
    Case("all devices", _exposing("all", "gpu"), _owning(NVIDIA), _EXPOSED),
    Case("some devices", _exposing("0,1", "gpu"), _owning(NVIDIA), _EXPOSED),
    Case("no devices", _exposing("void", "gpu"), _owning(NVIDIA)),
    Case("of a driver that is not owned", _exposing("all", "gpu"), _owning(EXAMPLE)),
    Case("in a container that does not use the claim", _exposing("all"), _owning(NVIDIA)),
    Case(
        "in a translated pod, whose variables the translation reports",
        {**_exposing("all", "gpu"), "metadata": {"annotations": {REQUEST_ANNOTATION: "{}"}}},
        _owning(NVIDIA),
    ),
)

# --- configurations and classes -------------------------------------------------------------------


def mig_config() -> Document:
    kind = {"apiVersion": NVIDIA_CONFIG, "kind": "MigDeviceConfig"}
    return {**kind, "sharing": {"strategy": "TimeSlicing"}}


def asking_document(name: str, *, requests: tuple[str, ...] = (), parameters: Document) -> Document:
    return claim(exactly(deviceClassName=name), config=[config(parameters, *requests)])


_KIND = "spec.devices.config[0].opaque.parameters.kind"
_MPS = gpu_config(strategy="MPS")
_WHOLE_GPU = sub("whole")
_PART = sub("part", deviceClassName="mig.nvidia.com")


def _either(*, requests: tuple[str, ...], parameters: Document) -> Document:
    """Return a claim for a GPU or a MIG device, with a configuration."""
    return claim(first(_WHOLE_GPU, _PART), config=[config(parameters, *requests)])


_STRATEGY = "spec.devices.config[0].opaque.parameters.sharing.strategy"
_SHARED = resource_slice(
    device(allowMultipleAllocations=True, **attributes(type="gpu")), driver=NVIDIA
)
_WHOLE = resource_slice(
    device(**attributes(type="gpu")),
    name="whole",
    driver=NVIDIA,
    pool={"name": "b", "resourceSliceCount": 1},
    nodeName="b",
)

CONFIGS = (
    Case("GPUs", asking_document(NVIDIA, requests=("gpu",), parameters=_MPS), context()),
    Case("MIG devices", asking_document("mig.nvidia.com", parameters=mig_config()), context()),
    Case(
        "what is for GPUs, named for MIG devices",
        asking_document("mig.nvidia.com", requests=("gpu",), parameters=_MPS),
        context(),
        (f"error configMismatch {_KIND}",),
    ),
    Case(
        "what is for GPUs, for whatever there is, which is MIG devices",
        asking_document("mig.nvidia.com", parameters=_MPS),
        context(),
        (f"warning configMismatch {_KIND}",),
    ),
    Case(
        "what is for GPUs, for devices of either type",
        asking_document("any.nvidia.com", requests=("gpu",), parameters=_MPS),
        context(),
    ),
    Case(
        "what is for GPUs, for a class that is not known",
        asking_document("mine.nvidia.com", requests=("gpu",), parameters=_MPS),
        context(),
    ),
    Case(
        "what is for GPUs, where the request itself wants MIG devices",
        claim(
            exactly(
                deviceClassName="any.nvidia.com",
                selectors=[cel(f'device.attributes["{NVIDIA}"].type == "mig"')],
            ),
            config=[config(_MPS, "gpu")],
        ),
        context(),
        (f"error configMismatch {_KIND}",),
    ),
    Case(
        "what is for GPUs, for all, of which one is a GPU",
        claim(
            exactly("whole"),
            exactly("part", deviceClassName="mig.nvidia.com"),
            config=[config(_MPS)],
        ),
        context(),
    ),
    Case(
        "what is for GPUs, for a request of which an alternative is MIG devices",
        _either(requests=("gpu",), parameters=_MPS),
        context(),
        ("warning configNotApplied spec.devices.config[0].requests[0]",),
    ),
    Case(
        "what is for GPUs, for each alternative, of which one is MIG devices",
        _either(requests=("gpu/whole", "gpu/part"), parameters=_MPS),
        context(),
        (f"warning configMismatch {_KIND}",),
    ),
    Case(
        "what is for GPUs, for the alternative of GPUs",
        _either(requests=("gpu/whole",), parameters=_MPS),
        context(),
    ),
    Case(
        "what is for GPUs, for alternatives that are all MIG devices",
        claim(
            first(_PART, {**_PART, "name": "second"}),
            config=[config(_MPS, "gpu/part", "gpu/second")],
        ),
        context(),
        (f"error configMismatch {_KIND}",),
    ),
    Case(
        "what is for GPUs, for a MIG device among other requests",
        claim(
            first(_WHOLE_GPU, _PART),
            exactly("part", deviceClassName="mig.nvidia.com"),
            config=[config(_MPS, "gpu/part", "part")],
        ),
        context(),
        (f"error configMismatch {_KIND}",),
    ),
    Case(
        "MPS for a request of which alternatives are shared by amounts",
        _either(requests=("gpu",), parameters=_MPS),
        context(_SHARED),
        ("warning configNotApplied spec.devices.config[0].requests[0]",),
    ),
    Case(
        "MPS on devices that are shared by amounts",
        asking_document(NVIDIA, requests=("gpu",), parameters=_MPS),
        context(_SHARED),
        (f"error conflictingSharing {_STRATEGY}",),
    ),
    Case(
        "MPS on devices of which some are whole",
        asking_document(NVIDIA, requests=("gpu",), parameters=_MPS),
        context(_SHARED, _WHOLE),
    ),
    Case(
        "administrative access where it is not allowed",
        claim(exactly(adminAccess=True)),
        context(namespaces={"team-a": {}}),
        ("error adminAccessNotAllowed spec.devices.requests[0].adminAccess",),
    ),
    Case(
        "administrative access where it is allowed",
        claim(exactly(adminAccess=True)),
        context(namespaces={"team-a": {"resource.kubernetes.io/admin-access": "true"}}),
    ),
    Case(
        "administrative access where nothing is known",
        claim(exactly(adminAccess=True)),
        context(),
    ),
)


# --- policies of a driver -------------------------------------------------------------------------


def policies(**creation_times: str | None) -> Context:
    """A cluster with policies of these names, made at these times."""
    return context(
        policies=tuple(
            convert(
                {**policy(_RULE), "metadata": {"name": name, "creationTimestamp": time}},
                DeviceCompatibilityPolicy,
            )
            for name, time in creation_times.items()
        )
    )


_RULE: Document = {"name": "mig", "compatibilityGroups": ["mig"]}


def in_cluster(*devices: Document, gate: bool) -> Context:
    support = SchedulerSupport(compatibility_groups=gate)
    return msgspec.structs.replace(context(resource_slice(*devices)), support=support)


GROUPED: Document = device(
    consumesCounters=[
        {"counterSet": "set", "counters": {"sm": {"value": "1"}}, "compatibilityGroups": ["mig"]}
    ]
)

POLICIES = (
    Case("the only policy of a driver", policy(_RULE), policies()),
    Case("itself, stored before", policy(_RULE), policies(validated="2026-11-20T00:00:00Z")),
    Case(
        "beside a policy that is stored already",
        policy(_RULE),
        policies(other="2026-11-20T00:00:00Z"),
        ("warning duplicatePolicyForDriver spec.driver",),
    ),
    Case(
        "beside a policy that comes with it, and after it by name", policy(_RULE), policies(z=None)
    ),
    Case(
        "beside a policy that comes with it, and before it by name",
        policy(_RULE),
        policies(a=None),
        ("warning duplicatePolicyForDriver spec.driver",),
    ),
    Case(
        "where every scheduler ignores policies",
        policy(_RULE),
        Context(support=SchedulerSupport()),
        ("warning policyNotEnforced spec.enforcement",),
    ),
    Case(
        "where a scheduler evaluates policies",
        policy(_RULE),
        Context(support=SchedulerSupport(policy_aware=frozenset(["aware"]))),
    ),
    Case(
        "where every scheduler ignores policies, and it only audits",
        {**policy(_RULE), "spec": {**policy(_RULE)["spec"], "enforcement": "Audit"}},
        Context(support=SchedulerSupport()),
    ),
    Case(
        "where slices have equivalent groups and the gate is on",
        policy(_RULE),
        in_cluster(GROUPED, gate=True),
    ),
    Case(
        "where slices have equivalent groups and the gate is off",
        policy(_RULE),
        in_cluster(GROUPED, gate=False),
        ("warning policyNotEnforced spec.enforcement",),
    ),
    Case(
        "where slices have no groups and the gate is on",
        policy({"name": "alone", "compatibleOnlyWith": cel("device.driver == 'other'")}),
        in_cluster(device(), device("gpu-1"), gate=True),
        ("warning policyNotEnforced spec.enforcement",),
    ),
    Case(
        "beside a policy of another driver",
        {**policy(_RULE), "spec": {"driver": "other.example.com", "rules": [_RULE]}},
        policies(a="2026-11-20T00:00:00Z"),
    ),
)


@pytest.mark.parametrize(
    "case", [*SLICES, *PODS, *VARIABLES, *CONFIGS, *POLICIES], ids=lambda case: case.name
)
def test_validate(case: Case) -> None:
    assert case.expected_findings == finding_lines(case.document, case.there)


def test_an_inventory_that_lost_a_generation_knows_the_newest() -> None:
    newer = resource_slice(device("gpu-9"), name="newer", generation=2)
    inventory = context(GPUS, newer).inventory

    assert [device_.id.device for device_ in inventory.devices] == ["gpu-9"]
    assert inventory.is_complete_for([EXAMPLE])
    assert not inventory.is_complete_for([NVIDIA])
    assert not inventory.is_complete_for([])


@pytest.mark.parametrize(
    ("parameters", "gate"),
    [
        (_MPS, "MPSSupport"),
        (gpu_config(strategy="TimeSlicing"), "TimeSlicingSettings"),
        ({"apiVersion": NVIDIA_CONFIG, "kind": "VfioDeviceConfig"}, "PassthroughSupport"),
    ],
)
def test_a_gate_that_is_off_by_default_is_worth_knowing(parameters: Document, gate: str) -> None:
    (finding,) = findings_of(asking_document(NVIDIA, requests=("gpu",), parameters=parameters))

    assert finding.code == "requiresFeatureGate"
    assert gate in finding.message


@pytest.mark.parametrize(
    ("document", "message", "fix"),
    [
        (
            _either(requests=("gpu",), parameters=_MPS),
            "so it ignores this configuration",
            "list gpu/whole",
        ),
        (
            _either(requests=("gpu",), parameters={"kind": "Unknown"}),
            "so it ignores this configuration",
            "list gpu/whole and gpu/part",
        ),
        (
            claim(first(_PART), config=[config(_MPS, "gpu")]),
            "so it ignores this configuration",
            "remove it: no alternative selects devices of type gpu",
        ),
        (
            _either(requests=("gpu/whole", "gpu/part"), parameters=_MPS),
            'request "gpu/part" selects type mig: the driver rejects it if this alternative is allocated',
            'remove "gpu/part" from its requests',
        ),
        (
            asking_document("mig.nvidia.com", requests=("gpu",), parameters=_MPS),
            'request "gpu" selects type mig: the driver rejects it',
            "use MigDeviceConfig",
        ),
    ],
)
def test_the_fix_names_alternatives_for_which_the_configuration_is(
    document: Document, message: str, fix: str
) -> None:
    codes = {"configMismatch", "configNotApplied"}
    (finding,) = (finding for finding in findings_of(document, context()) if finding.code in codes)

    assert finding.message.endswith(message)
    assert finding.fix == fix
