"""Sharing configurations that contradict those of co-tenants, for drivers that reject them.

kube-scheduler does not compare opaque parameters, so it may choose a shared device whose co-tenants have
another configuration. The driver rejects the second pod when it prepares its devices. A finding is a
warning, since the scheduler may as well choose another device
(docs/adr/0016-configurations-of-co-tenants.md).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from allocator.cluster.cluster import Cluster
from allocator.features.co_tenant_config import (
    Contradiction,
    audit_plan,
    contradictions_on,
    device_settings,
)
from allocator.model.devices import DeviceId
from allocator.model.outcome import AttemptFailed
from allocator.model.plan import Plan
from findings.field_path import FieldPath
from findings.finding import Code, Finding, warning
from kube.api.core import Pod
from kube.api.meta import ObjectMeta, convert
from kube.api.resource import (
    DeviceClaim,
    OpaqueDeviceConfiguration,
    ResourceClaim,
    ResourceClaimSpec,
)
from rules.context.context import Context
from rules.context.rule import OTHER_OBJECTS, Category, Rule, Scope, Subject
from rules.feasibility.bounded_search import BUDGET, MAX_STEPS
from rules.model.requests import MAX_CHARACTERS, exceeds_compile_cost, list_selectors

MAX_CLAIMS: Final = 16
"""Claims of a pod that are evaluated together, and other claims that one claim is compared with."""
_FIX: Final = "Use one sharing configuration for all claims that may share a device."


def _validate_claim(
    claim: Subject[DeviceClaim], path: FieldPath, context: Context
) -> Iterator[Finding]:
    cluster, place = context.current_cluster, path.child("config")
    if cluster is None or not context.uniform_config_drivers:
        return
    metadata = claim.raw.get("metadata")
    name = str(metadata.get("name", "")) if isinstance(metadata, dict) else ""
    if (claim.namespace, name) in context.allocated_claims:
        yield from _in_use(cluster, claim, name, path, context)
        return
    own = _resource_claim(claim.view, claim.namespace, name)
    yield from _may_contradict_co_tenants(cluster, (own,), place, context)
    if context.applied_together:
        yield from _may_contradict_claims(cluster, own, place, context)


def _validate_pod(pod: Subject[Pod], path: FieldPath, context: Context) -> Iterator[Finding]:
    cluster = context.current_cluster
    if cluster is None or not context.uniform_config_drivers or pod.view.spec.node_name:
        return
    claims = []
    for reference in (pod.view.spec.resource_claims or ())[:MAX_CLAIMS]:
        if reference.resource_claim_template_name:
            devices = context.templates.get((pod.namespace, reference.resource_claim_template_name))
        else:
            key = (pod.namespace, reference.resource_claim_name or "")
            devices = None if key in context.allocated_claims else context.claims.get(key)
        if devices is not None:
            claims.append(_resource_claim(devices, pod.namespace, reference.name))
    yield from _may_contradict_co_tenants(
        cluster, claims, path.child("spec", "resourceClaims"), context
    )


# --- claims without an allocation -----------------------------------------------------------------


def _may_contradict_co_tenants(
    cluster: Cluster, claims: Sequence[ResourceClaim], path: FieldPath, context: Context
) -> Iterator[Finding]:
    """Yield a warning if the scheduler's choice on some node contradicts a co-tenant, or itself."""
    fitting = conflicting = 0
    contradiction = None
    for nodes, contradictions in _audit(cluster, claims, context):
        fitting += nodes
        if contradictions:
            conflicting += nodes
            contradiction = contradictions[0]
    if contradiction is not None:
        yield warning(
            Code.CONFLICTING_SHARING_CONFIG,
            path,
            f"on {conflicting:,} of {fitting:,} nodes that fit, the scheduler may choose a device "
            f"that a claim with another {_kind(contradiction)} uses; "
            f"{_consequence(contradiction.device.driver)}",
            _FIX,
        )


def _may_contradict_claims(
    cluster: Cluster, claim: ResourceClaim, path: FieldPath, context: Context
) -> Iterator[Finding]:
    """Yield a warning if another given claim could share a device with a contradicting config."""
    own = _settings(claim.spec.devices, context)
    others = (
        (key, devices)
        for objects in (context.claims, context.templates)
        for key, devices in sorted(objects.items())
        if key not in context.allocated_claims and _contradict(own, _settings(devices, context))
    )
    for (namespace, name), devices in islice(others, MAX_CLAIMS):
        other = _resource_claim(devices, namespace, name)
        for _, contradictions in _audit(cluster, (other, claim), context):
            if contradictions:
                place = name if namespace == claim.metadata.namespace else "in another namespace"
                yield warning(
                    Code.CONFLICTING_SHARING_CONFIG,
                    path,
                    f"claim or template {place} has another {_kind(contradictions[0])}, and the "
                    "scheduler may choose the same device for both; "
                    f"{_consequence(contradictions[0].device.driver)}",
                    _FIX,
                )
                return


def _audit(
    cluster: Cluster, claims: Sequence[ResourceClaim], context: Context
) -> Iterator[tuple[int, tuple[Contradiction, ...]]]:
    """Yield the size of each class of nodes that fits, and the contradictions of its plan."""
    drivers = context.uniform_config_drivers
    if not any(_settings(claim.spec.devices, context) for claim in claims):
        return
    selectors = list_selectors(claim.spec.devices for claim in claims)
    if exceeds_compile_cost(selectors, MAX_CHARACTERS):
        return
    steps_left = MAX_STEPS
    try:
        pending = cluster.resolve(claims)
        for verdict in cluster.class_verdicts(pending, budget=BUDGET):
            if isinstance(verdict.outcome, Plan):
                # Classes that ignore the order of devices have no device that can be shared.
                contradictions = (
                    audit_plan(
                        verdict.outcome,
                        verdict.representative,
                        cluster.usage,
                        pending,
                        drivers=drivers,
                        features=cluster.options.features,
                    )
                    if verdict.same_order
                    else ()
                )
                yield len(verdict.nodes), contradictions
            steps_left -= max(verdict.outcome.steps, 1)
            if steps_left <= 0:
                return
    except AttemptFailed:
        return  # Other rules report it.


def _resource_claim(devices: DeviceClaim, namespace: str, name: str) -> ResourceClaim:
    metadata = ObjectMeta(name=name or "claim", namespace=namespace)
    return ResourceClaim(metadata=metadata, spec=ResourceClaimSpec(devices=devices))


def _settings(
    devices: DeviceClaim, context: Context
) -> dict[tuple[str, tuple[str, str]], frozenset[bytes]]:
    """Return the settings of any request, by driver and kind of parameters."""
    opaque: list[OpaqueDeviceConfiguration | None] = [
        entry.opaque for entry in devices.config or ()
    ]
    for name in sorted(_class_names(devices)):
        device_class = context.classes.get(name)
        if device_class is not None:
            opaque += [entry.opaque for entry in device_class.spec.config or ()]
    settings: dict[tuple[str, tuple[str, str]], frozenset[bytes]] = {}
    for configuration in opaque:
        if configuration is None or configuration.driver not in context.uniform_config_drivers:
            continue
        for kind, value in device_settings((configuration.parameters,)).items():
            key = (configuration.driver, kind)
            settings[key] = settings.get(key, frozenset()) | {value}
    return settings


def _class_names(devices: DeviceClaim) -> set[str]:
    names = set()
    for request in devices.requests or ():
        if request.exactly is not None:
            names.add(request.exactly.device_class_name)
        names.update(alternative.device_class_name for alternative in request.first_available or ())
    return names


def _contradict(
    own: dict[tuple[str, tuple[str, str]], frozenset[bytes]],
    other: dict[tuple[str, tuple[str, str]], frozenset[bytes]],
) -> bool:
    return any(key in other and len(values | other[key]) > 1 for key, values in own.items())


# --- allocated claims -----------------------------------------------------------------------------


def _in_use(
    cluster: Cluster, claim: Subject[DeviceClaim], name: str, path: FieldPath, context: Context
) -> Iterator[Finding]:
    """Yield a warning for each device of a claim with co-tenants that contradict each other now."""
    own = (claim.namespace, name)
    for device in _allocated_devices(claim.raw):
        use = cluster.usage.of(device)
        if use is None or device.driver not in context.uniform_config_drivers:
            continue
        for contradiction in contradictions_on(device, use):
            names = {(consumer.namespace, consumer.claim) for consumer in contradiction.consumers}
            if own not in names:
                continue
            others = sorted(names - {own})
            parts = [f"claim {other}" for namespace, other in others if namespace == own[0]]
            if any(namespace != own[0] for namespace, _ in others):
                parts.append("a claim in another namespace")
            yield warning(
                Code.CONFLICTING_SHARING_CONFIG,
                path,
                f"device {device.device} of pool {device.pool} is also in use by "
                f"{', '.join(parts) or 'another request'} with another {_kind(contradiction)}; "
                f"{_consequence(device.driver)}",
                _FIX,
            )


def _allocated_devices(raw: Mapping[str, Any]) -> Iterable[DeviceId]:
    """Return the devices of an allocated claim."""
    allocation = convert(raw, ResourceClaim).status
    results = allocation.allocation.devices.results if allocation and allocation.allocation else ()
    return dict.fromkeys(
        DeviceId(result.driver, result.pool, result.device) for result in results or ()
    )


def _kind(contradiction: Contradiction) -> str:
    return contradiction.kind or "configuration"


def _consequence(driver: str) -> str:
    return f"driver {driver} rejects the second pod when it prepares the device"


RULES: Final[tuple[Rule[Any], ...]] = tuple(
    Rule(
        code=Code.CONFLICTING_SHARING_CONFIG,
        scope=scope,
        category=Category.NOT_YET,
        validate=validate,
        fix=_FIX,
        no_cel_reason=OTHER_OBJECTS,
    )
    for scope, validate in ((Scope.CLAIM, _validate_claim), (Scope.POD, _validate_pod))
)
