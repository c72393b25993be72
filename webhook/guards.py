"""What stands between a pod and its translation: reasons to leave it alone, and what its place says.

Each guard returns findings. An error refuses the pod, since going on would break a promise that
somebody else made to it: a quota that counts, a template of that name.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from kube.api.core import Pod
from webhook.claims import Claim
from webhook.derivation import Readings
from webhook.findings import Code, Finding, error, info, printable, shown, warning
from webhook.intents import LegacyPod, Variable
from webhook.legacy import (
    CONVERTED_LABELS,
    HAMI_OPT_OUT_LABELS,
    MIRROR_ANNOTATION,
    OPT_OUT_LABELS,
)
from webhook.quotas import Quota, Scopes
from webhook.vocabularies import arbiter
from webhook.vocabularies.hami import VOCABULARY as HAMI
from webhook.vocabularies.koordinator import takes_whole_gpus
from webhook.vocabularies.nvidia import PLUGIN_VARIABLES, SHARED_PRODUCT, VISIBLE_DEVICES
from webhook.vocabularies.nvidia import VOCABULARY as NVIDIA
from webhook.world import Onlooker, Options, QuotaPolicy, World, vocabularies

NO_DEVICES: Final = frozenset({"", "void", "none"})
"""Values of NVIDIA_VISIBLE_DEVICES that open no device."""


# --- pods that are left alone ---------------------------------------------------------------------


def left_alone(legacy: LegacyPod, namespace: str, world: World, options: Options) -> list[Finding]:
    """Return why the pod is not ours to translate; empty when it is."""
    if MIRROR_ANNOTATION in legacy.annotations:
        return [info(Code.OPTED_OUT, "metadata.annotations", "a mirror pod is the kubelet's own")]
    wanted = OPT_OUT_LABELS
    if HAMI.name in arbiter.owners(legacy, bare_gpu=options.bare_gpu):
        wanted = wanted | HAMI_OPT_OUT_LABELS
    for carrier, labels in (
        ("", legacy.labels),
        (f" of namespace {namespace}", world.namespaces.get(namespace, {})),
    ):
        opted_out = _carries(labels, wanted)
        if opted_out is not None:
            said = f"label {opted_out}{carrier}: nothing translated"
            return [info(Code.OPTED_OUT, "metadata.labels", said)]
    converted = _carries(legacy.labels, CONVERTED_LABELS)
    if converted is not None:
        return [
            info(
                Code.ALREADY_CONVERTED,
                "metadata.labels",
                f"label {converted}: another converter made this pod's claims",
            )
        ]
    return list(_scheduled_elsewhere(legacy, options))


def _carries(labels: Mapping[str, str], wanted: Mapping[str, str]) -> str | None:
    return next((f"{k}={v}" for k, v in wanted.items() if labels.get(k) == v), None)


def _scheduled_elsewhere(legacy: LegacyPod, options: Options) -> Iterator[Finding]:
    if legacy.node_name:
        yield warning(
            Code.NODE_NAME_SET,
            "spec.nodeName",
            "the pod is bound to a node without a scheduler, so nobody could allocate its claims; "
            "not translated",
            "leave nodeName out, or select the node with a nodeSelector",
        )
    elif options.scheduler_for(legacy.scheduler_name) is None:
        yield warning(
            Code.FOREIGN_SCHEDULER,
            "spec.schedulerName",
            f"{shown(legacy.scheduler_name)} may not understand claims; not translated",
            "leave schedulerName out, or list the scheduler in adoptSchedulers",
        )


def passes_through(legacy: LegacyPod, world: World, options: Options) -> bool:
    """Whether Kubernetes itself allocates the pod's devices (KEP-5004).

    Only whole devices can be said that way: no share, no filter, no annotation.
    """
    if any(name in HAMI.annotations for name in legacy.annotations) or takes_whole_gpus(legacy):
        return False
    speaking = vocabularies(options, world.profiles)
    counting = [NVIDIA, *(speaking[name] for name in arbiter.NICS)]
    return all(
        any(one.speaks(key) for one in counting)
        and key in world.extended_resources
        and amount.is_whole
        for container in legacy.containers
        for key, amount in container.limits.items()
    )


def passed_through(legacy: LegacyPod, world: World) -> Finding:
    """Return what to say of a pod that Kubernetes serves itself."""
    container = next(container for container in legacy.containers if container.limits)
    key = min(container.limits)
    return info(
        Code.PASSED_THROUGH,
        container.limit_path(key),
        f"DeviceClass {world.extended_resources[key]} maps {key}: Kubernetes allocates it as it is",
    )


# --- what the place says --------------------------------------------------------------------------


def _classes(claims: Sequence[Claim]) -> list[str]:
    return sorted({name for claim in claims for name in claim.class_names()})


def missing_classes(claims: Sequence[Claim], world: World) -> Iterator[Finding]:
    """Yield a finding for each DeviceClass that claims use and the cluster does not have."""
    if world.classes is None:
        return
    for name in _classes(claims):
        if name not in world.classes:
            yield warning(
                Code.DEVICE_CLASS_MISSING,
                "spec.resourceClaims",
                f"there is no DeviceClass {name}: the pod waits until its driver is installed",
                "install the driver, or choose another: --profile VOCABULARY=NAME",
            )


def uncounted(
    claims: Sequence[Claim],
    counted: Iterable[tuple[str, str]],
    scopes: Scopes,
    quotas: Mapping[str, Quota],
    options: Options,
) -> Iterator[Finding]:
    """Yield a finding for each quota that would silently stop counting this pod.

    Args:
        counted: Key and path of every amount that quotas count.
        scopes: Of the pod.
        quotas: Of its namespace, by name.
    """
    replacements = [f"{name}.deviceclass.resource.k8s.io/devices" for name in _classes(claims)]
    # One with a scope counts no claims.
    of_claims = frozenset[str]().union(*(one.names for one in quotas.values() if not one.scopes))
    if replacements and of_claims.issuperset(replacements):
        return
    say = error if options.quota is QuotaPolicy.DENY else warning
    for key, path in counted:
        for quota in sorted(quotas):
            if f"requests.{key}" in quotas[quota].names and quotas[quota].counts(scopes):
                yield say(
                    Code.QUOTA_NOT_COUNTED,
                    path,
                    f"ResourceQuota {quota} counts requests.{key}, which a claim is not part of",
                    f"count {', '.join(replacements) or 'claims'} in a ResourceQuota instead",
                )


def counted(legacy: LegacyPod, readings: Readings) -> Iterator[tuple[str, str]]:
    """Yield key and path of every amount that quotas counted before."""
    for container in legacy.containers:
        for key, amount in sorted(container.limits.items()):
            if amount:
                yield key, container.limit_path(key)
    limits = {container.name: container.limits for container in legacy.containers}
    for vocabulary, reading in readings.items():
        added = arbiter.VOCABULARIES[vocabulary].added_key
        for intent in reading.intents:
            if added is not None and added not in limits[intent.container]:
                yield added, intent.path("count")


def taken(claims: Sequence[Claim], namespace: str, world: World) -> Iterator[Finding]:
    """Yield an error for each template that exists under our name with other content."""
    for claim in claims:
        found = world.templates.get((namespace, claim.template))
        if found is not None and found.digest != claim.digest:
            yield error(
                Code.TEMPLATE_TAKEN,
                "spec.resourceClaims",
                f"ResourceClaimTemplate {claim.template} exists with other content than its name "
                "stands for",
                f"delete it: kubectl delete resourceclaimtemplate -n {namespace} {claim.template}",
            )


def claimed_twice(
    pod: Pod, drivers: Iterable[str], namespace: str, world: World
) -> Iterator[Finding]:
    """Yield a warning for each claim that the pod has of its own, for a driver that its keys get too.

    As far as that is known: of claims by template, by the DeviceClasses of the driver's profile.

    Args:
        drivers: Of the claims that the keys become.
    """
    classes = {
        name: driver
        for driver in drivers
        if driver in world.profiles
        for name in world.profiles[driver].class_names()
    }
    for place, entry in enumerate(pod.spec.resource_claims or ()):
        known = world.templates.get((namespace, entry.resource_claim_template_name or ""))
        both = sorted(classes.keys() & known.classes) if known is not None else []
        if both:
            yield warning(
                Code.CLAIMED_TWICE,
                f"spec.resourceClaims[{place}]",
                f"it asks for DeviceClass {both[0]} of {classes[both[0]]}, and so do the pod's "
                "device keys: it gets the devices of both",
                "keep the claim or the keys, if one of them was to replace the other",
            )


def node_labels(legacy: LegacyPod) -> Iterator[Finding]:
    """Yield what to say of node labels that come from GPU feature discovery."""
    for key, text in legacy.node_selector.items():
        path = f"spec.nodeSelector[{key}]"
        if text.endswith(SHARED_PRODUCT):
            yield warning(
                Code.SHARED_NODE_LABEL,
                path,
                f"{shown(text)} stands on nodes whose device plugin shares GPUs; a driver's nodes "
                "do not carry it",
                f"select the product without {SHARED_PRODUCT}",
            )
        else:
            yield info(
                Code.NODE_LABEL, path, "set by GPU feature discovery, which must keep running"
            )


def unseen(
    claims: Sequence[Claim], resource: str, world: World, options: Options
) -> Iterator[Finding]:
    """Yield a warning for each onlooker that is there and may not see the claims.

    Args:
        resource: The device key that the claims replace.

    Source:
        kueue Configuration, resources.deviceClassMappings; cluster-autoscaler, its flag
        enable-dynamic-resource-allocation; karpenter, its setting IGNORE_DRA_REQUESTS.
    """
    for onlooker in sorted(world.onlookers.keys() - options.claims_seen_by):
        classes = [name for name in _classes(claims) if name not in world.onlookers[onlooker]]
        if classes:
            yield warning(
                Code.CLAIMS_NOT_SEEN,
                "spec.resourceClaims",
                _unseen_by(onlooker, resource, classes),
                "where it sees claims, name it in claimsSeenBy of the settings",
            )


def _unseen_by(onlooker: Onlooker, resource: str, classes: Sequence[str]) -> str:
    match onlooker:
        case Onlooker.KUEUE:
            mapping = f"{{name: {printable(resource)}, deviceClassNames: [{', '.join(classes)}]}}"
            return f"Kueue does not count these claims; add to its deviceClassMappings: {mapping}"
        case Onlooker.CLUSTER_AUTOSCALER:
            return (
                "the cluster autoscaler adds no node for claims, unless it runs with "
                "--enable-dynamic-resource-allocation"
            )
        case Onlooker.KARPENTER:
            return "Karpenter adds no node for claims, unless IGNORE_DRA_REQUESTS is false"


# --- what the pod says itself ---------------------------------------------------------------------


def kept(legacy: LegacyPod, variables: Iterable[Variable]) -> Iterator[Finding]:
    """Yield a warning for each variable that a container sets otherwise itself."""
    environments = {container.name: container.environment for container in legacy.containers}
    for variable in variables:
        kept = environments[variable.container].get(variable.name, variable.value)
        if kept != variable.value:
            yield warning(
                Code.KEPT_VALUE,
                variable.path,
                f"{variable.name} would be {variable.value}; the container sets it to "
                f"{shown(kept)}, which stays",
            )


def environment(legacy: LegacyPod) -> Iterator[Finding]:
    """Yield a warning for each variable by which a container asks the device plugin for more."""
    for container in legacy.containers:
        if not container.limits:
            continue
        visible = container.environment.get(VISIBLE_DEVICES)
        if visible is not None and visible not in NO_DEVICES:
            yield warning(
                Code.OPENS_DEVICES,
                f"{container.path}.env",
                f"{VISIBLE_DEVICES} set by hand may open GPUs beyond the claim",
                "remove it; the driver injects the claimed devices",
            )
        for name in PLUGIN_VARIABLES:
            if container.environment.get(name) == "enabled":
                yield warning(
                    Code.NOT_INJECTED,
                    f"{container.path}.env",
                    f"{name} asks the device plugin for device nodes that a claim does not bring",
                )
