"""Preflight checks: reasons to leave a pod untranslated, and conflicts of its claims with the cluster.

Each check returns findings. An error rejects the pod, because translating it would break a guarantee
of the cluster: a quota that counts its keys, or the content of a template with its name.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, info, warning
from findings.text import printable, quote_text
from kube.api.core import Pod
from kube.names import TRANSLATE_LABEL, TRANSLATE_SELECTED
from translation.cluster.routing import publishes_elsewhere
from translation.cluster.schedulers import check_scheduler
from translation.cluster.snapshot import (
    Mode,
    NativePolicy,
    TranslationOptions,
    TranslationSnapshot,
    WideMapping,
    vocabularies_in_force,
)
from translation.compiling.claims import Claim
from translation.model.intents import LegacyPod, Variable
from translation.profiles.profile import DeviceProfile, Profile
from translation.reading import arbiter
from translation.reading.legacy_pod import (
    CONVERTED_LABELS,
    HAMI_OPT_OUT_LABELS,
    MIRROR_ANNOTATION,
    OPT_OUT_LABELS,
)
from translation.vocabularies.hami.translate import VOCABULARY as HAMI
from translation.vocabularies.koordinator.replacements import takes_whole_gpus
from translation.vocabularies.nvidia import PLUGIN_VARIABLES, SHARED_PRODUCT, VISIBLE_DEVICES
from translation.vocabularies.nvidia import VOCABULARY as NVIDIA
from translation.vocabularies.resources import NAME as RESOURCES

NO_DEVICES: Final = frozenset({"", "void", "none"})
"""Values of NVIDIA_VISIBLE_DEVICES that expose no device."""


# --- pods that stay untranslated ------------------------------------------------------------------


def skip_reasons(
    legacy: LegacyPod, namespace: str, snapshot: TranslationSnapshot, options: TranslationOptions
) -> list[Finding]:
    """Return the reasons to leave a pod untranslated; empty without any."""
    if MIRROR_ANNOTATION in legacy.annotations:
        return [
            info(
                Code.OPTED_OUT,
                FieldPath.of("metadata", "annotations"),
                "a mirror pod belongs to its kubelet",
            )
        ]
    if namespace in options.exempt_namespaces:
        return [
            info(
                Code.OPTED_OUT,
                FieldPath.of("metadata", "namespace"),
                f"not translated: the settings exempt namespace {namespace}",
            )
        ]
    opted_in = snapshot.is_opted_in(namespace, legacy.labels)
    for carrier, labels in (
        ("", legacy.labels),
        (f" of namespace {namespace}", snapshot.namespaces.get(namespace, {})),
    ):
        opt_out = _matching_label(labels, OPT_OUT_LABELS)
        # The label of the namespace takes it away from HAMi, so HAMi's own labels do not count there.
        hami_opt_out = None if opted_in else _matching_label(labels, HAMI_OPT_OUT_LABELS)
        if opt_out is None and hami_opt_out is not None and _is_of_hami(legacy, snapshot, options):
            opt_out = hami_opt_out
        if opt_out is not None:
            message = f"not translated: label {opt_out}{carrier}"
            return [info(Code.OPTED_OUT, FieldPath.of("metadata", "labels"), message)]
    if snapshot.is_selective(namespace) and not opted_in:
        return [
            info(
                Code.NOT_OPTED_IN,
                FieldPath.of("metadata", "labels"),
                f"not translated: namespace {namespace} has the label {TRANSLATE_LABEL}: "
                f'{TRANSLATE_SELECTED}, and the pod lacks the label {TRANSLATE_LABEL}: "true"',
            )
        ]
    if options.mode is Mode.OPT_IN and not opted_in:
        return [
            info(
                Code.NOT_OPTED_IN,
                FieldPath.of("metadata", "namespace"),
                f"not translated: mode {options.mode}, and namespace {namespace} lacks the label "
                f'{TRANSLATE_LABEL}: "true"',
            )
        ]
    converted_label = _matching_label(legacy.labels, CONVERTED_LABELS)
    if converted_label is not None:
        return [
            info(
                Code.ALREADY_CONVERTED,
                FieldPath.of("metadata", "labels"),
                f"label {converted_label}: another converter created this pod's claims",
            )
        ]
    return list(check_scheduler(legacy, options, opted_in=opted_in))


def _is_of_hami(
    legacy: LegacyPod, snapshot: TranslationSnapshot, options: TranslationOptions
) -> bool:
    """Return whether HAMi owns a key of the pod, so that its opt-out counts."""
    return HAMI.name in arbiter.owners(
        legacy,
        default_gpu_owner=options.default_gpu_owner,
        vocabularies=vocabularies_in_force(options, snapshot.profiles),
    )


def _matching_label(labels: Mapping[str, str], patterns: Mapping[str, str]) -> str | None:
    return next(
        (f"{key}={value}" for key, value in patterns.items() if labels.get(key) == value), None
    )


def is_native(
    legacy: LegacyPod, snapshot: TranslationSnapshot, options: TranslationOptions
) -> bool:
    """Return whether Kubernetes itself allocates the pod's devices (KEP-5004).

    It allocates whole devices only: no share, no filter, no annotation. A class whose driver never
    published a device allocates none, so its keys are translated where another GPU driver has. So are
    keys whose class gives other devices than they mean, unless the settings say otherwise. A pod
    that has to leave its scheduler is translated, since the scheduler of a legacy system finds only its own
    nodes, and without claims the default scheduler would not keep the pod from them.
    """
    # First what nearly always decides.
    if not legacy.keys() <= snapshot.extended_resources.keys():
        return False
    if options.native is NativePolicy.TRANSLATE:
        return False
    if options.native is NativePolicy.EXACT and legacy.keys() & snapshot.wide_mappings.keys():
        return False
    if options.scheduler_for(legacy.scheduler_name) != legacy.scheduler_name:
        return False
    if any(name in HAMI.annotations for name in legacy.annotations) or takes_whole_gpus(legacy):
        return False
    vocabularies = vocabularies_in_force(options, snapshot.profiles)
    if arbiter.requests_by_annotations(legacy, vocabularies):
        return False
    names = (NVIDIA.name, RESOURCES, *arbiter.NICS)
    whole_devices = [vocabularies[name] for name in names if name in vocabularies]
    return all(
        any(vocabulary.handles(key) for vocabulary in whole_devices)
        and not publishes_elsewhere(key, snapshot)
        and amount.is_whole
        for container in legacy.containers
        for key, amount in container.limits.items()
    )


def check_mappings(
    legacy: LegacyPod, snapshot: TranslationSnapshot, options: TranslationOptions
) -> Iterator[Finding]:
    """Yield a warning for each key whose DeviceClass gives other devices than it means.

    Only of a pod that Kubernetes would serve, were the class taken for what the key means.
    """
    wide = snapshot.wide_mappings
    if wide.keys().isdisjoint(legacy.keys()):
        return
    as_mapped = msgspec.structs.replace(options, native=NativePolicy.MAPPED)
    reported: set[str] = set()
    for container in legacy.containers if is_native(legacy, snapshot, as_mapped) else ():
        for key in sorted(container.limits.keys() & wide.keys() - reported):
            reported.add(key)
            yield wide_mapping_finding(wide[key], container.limit_path(key))


def wide_mapping_finding(mapping: WideMapping, path: FieldPath) -> Finding:
    """Return the finding on a mapping, at the class or at a key of a pod."""
    return warning(
        Code.MAPPING_TOO_WIDE,
        path,
        f"DeviceClass {printable(mapping.device_class)} maps {printable(mapping.resource)}, and "
        f"{mapping.reason}",
        "map the name by a DeviceClass of its own that selects only these devices",
    )


def native_finding(legacy: LegacyPod, snapshot: TranslationSnapshot) -> Finding:
    """Return the finding about a pod whose devices Kubernetes itself allocates."""
    container = next(container for container in legacy.containers if container.limits)
    key = min(container.limits)
    device_class = snapshot.extended_resources[key]
    return info(
        Code.PASSED_THROUGH,
        container.limit_path(key),
        f"DeviceClass {device_class} maps {key}: Kubernetes allocates it without translation",
    )


# --- conflicts with the cluster -------------------------------------------------------------------


def _device_classes(claims: Sequence[Claim]) -> list[str]:
    return sorted({name for claim in claims for name in claim.class_names()})


def check_class_configs(
    claims: Sequence[Claim],
    profiles: Iterable[Profile],
    snapshot: TranslationSnapshot,
) -> Iterator[Finding]:
    """Yield a warning for each class without the configuration that its driver needs.

    A claim has none: its parameters are objects of the cluster, such as a
    NetworkAttachmentDefinition.
    """
    needed_configs = {
        name: (profile.driver, device.class_config)
        for profile in profiles
        for device in profile.devices.values()
        if isinstance(device.class_config, str)
        for name in _classes_of(device)
    }
    for claim in claims:
        configured = _configured_requests(claim)
        for index, name in claim.classes_by_request():
            if name not in needed_configs or index in configured:
                continue
            driver, config = needed_configs.pop(name)
            if driver not in snapshot.class_configs.get(name, ()):
                path = claim.source(FieldPath.of("requests", index))
                yield warning(
                    Code.CLASS_CONFIG_MISSING,
                    path or FieldPath.of("spec"),
                    f"driver {driver} needs {config}, and DeviceClass {name} is not known to have one: "
                    "the pod may never start",
                    f"add the configuration to DeviceClass {name}",
                )


def _configured_requests(claim: Claim) -> frozenset[int]:
    """Return the requests of a claim for which it has a configuration of its own."""
    devices = claim.spec["spec"]["devices"]
    names = {
        name for config in devices.get("config") or () for name in config.get("requests") or ()
    }
    return frozenset(
        index for index, request in enumerate(devices["requests"]) if request["name"] in names
    )


def _classes_of(device: DeviceProfile) -> frozenset[str]:
    class_names = (resource.class_name for resource in (device.resources or {}).values())
    return frozenset({device.class_name, *(name for name in class_names if name is not None)})


def check_limit_ranges(
    legacy: LegacyPod, namespace: str, snapshot: TranslationSnapshot
) -> Iterator[Finding]:
    """Yield an error for each LimitRange that bounds a key which the translation removes."""
    limit_ranges = snapshot.limit_ranges.get(namespace, {})
    for container in legacy.containers if limit_ranges else ():
        for key in sorted(container.limits):
            for name in sorted(limit_ranges):
                if key in limit_ranges[name].bounded:
                    yield error(
                        Code.LIMIT_RANGE_CONFLICT,
                        container.limit_path(key),
                        f"LimitRange {name} bounds {key}, and Kubernetes rejects pods without it, as "
                        "translated pods are",
                        f"remove {key} from the LimitRange, and limit claims by a ResourceQuota on their "
                        "DeviceClass",
                    )


def check_template_names(
    claims: Sequence[Claim], namespace: str, snapshot: TranslationSnapshot
) -> Iterator[Finding]:
    """Yield an error for each template of a claim's name that exists with other content."""
    for claim in claims:
        existing = snapshot.templates.get((namespace, claim.template))
        if existing is not None and existing.digest != claim.digest:
            yield error(
                Code.TEMPLATE_CONFLICT,
                FieldPath.of("spec", "resourceClaims"),
                f"ResourceClaimTemplate {claim.template} exists with content that does not match "
                "its name",
                f"delete it: kubectl delete resourceclaimtemplate -n {namespace} {claim.template}",
            )


def check_duplicate_claims(
    pod: Pod, drivers: Iterable[str], namespace: str, snapshot: TranslationSnapshot
) -> Iterator[Finding]:
    """Yield a warning for each claim in the manifest for a driver that also serves its device keys.

    Only claims from templates are checked, by the DeviceClasses in the driver's profile.

    Args:
        drivers: The drivers of the claims that replace the keys.
    """
    entries = pod.spec.resource_claims
    if not entries:
        return
    driver_of_class = {
        name: driver
        for driver in drivers
        if driver in snapshot.profiles
        for name in snapshot.profiles[driver].class_names()
    }
    for index, entry in enumerate(entries):
        template = snapshot.templates.get((namespace, entry.resource_claim_template_name or ""))
        both = sorted(driver_of_class.keys() & template.classes) if template is not None else []
        if both:
            yield warning(
                Code.DUPLICATE_CLAIM,
                FieldPath.of("spec", "resourceClaims", index),
                f"requests DeviceClass {both[0]} of {driver_of_class[both[0]]}, and so do the pod's "
                "device keys: it gets the devices of both",
                "remove the claim or the keys, if one of them should replace the other",
            )


def check_node_labels(legacy: LegacyPod) -> Iterator[Finding]:
    """Yield a finding for each label of GPU feature discovery in the node selector."""
    for key, text in legacy.node_selector.items():
        path = FieldPath.of("spec", "nodeSelector").key(key)
        if text.endswith(SHARED_PRODUCT):
            yield warning(
                Code.GPU_SHARING_NODE_LABEL,
                path,
                f"{quote_text(text)} is a label of nodes whose device plugin shares GPUs; nodes of a DRA "
                "driver do not have it",
                f"select the product without {SHARED_PRODUCT}",
            )
        else:
            yield info(
                Code.GPU_DISCOVERY_NODE_LABEL,
                path,
                "set by GPU feature discovery, which must keep running",
            )


# --- conflicts within the pod ---------------------------------------------------------------------


def check_existing_variables(legacy: LegacyPod, variables: Iterable[Variable]) -> Iterator[Finding]:
    """Yield a warning for each variable that a container already sets to another value."""
    environments = {container.name: container.environment for container in legacy.containers}
    for variable in variables:
        existing = environments[variable.container].get(variable.name, variable.value)
        if existing != variable.value:
            yield warning(
                Code.EXISTING_VALUE_KEPT,
                variable.path,
                f"{variable.name} is not set to {variable.value}: the container's own value "
                f"{quote_text(existing)} is kept",
            )


def check_environment(legacy: LegacyPod) -> Iterator[Finding]:
    """Yield a warning for each variable that requests further devices from the device plugin."""
    for container in legacy.containers:
        if not container.limits:
            continue
        visible = container.environment.get(VISIBLE_DEVICES)
        if visible is not None and visible not in NO_DEVICES:
            yield warning(
                Code.DEVICES_EXPOSED_BY_ENV,
                container.path.child("env"),
                f"{VISIBLE_DEVICES} in the manifest may expose GPUs that are not in the claim",
                "remove it; the driver injects the claimed devices",
            )
        for name in PLUGIN_VARIABLES:
            if container.environment.get(name) == "enabled":
                yield warning(
                    Code.NOT_INJECTED,
                    container.path.child("env"),
                    f"{name} requests device nodes from the device plugin that a claim does not "
                    "provide",
                )
