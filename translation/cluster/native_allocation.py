"""Pods served by Kubernetes natively (KEP-5004), and keys with a DeviceClass that gives more. Pure."""

from collections.abc import Collection, Iterator, Mapping

import msgspec

from findings.field_path import FieldPath
from findings.finding import Code, Finding, warning
from findings.text import printable
from kube.names import DEFAULT_SCHEDULER_NAME
from translation.cluster.routing import publishes_elsewhere
from translation.cluster.snapshot import (
    NativePolicy,
    TranslationOptions,
    TranslationSnapshot,
    WideMapping,
    vocabularies_in_force,
)
from translation.model.intents import LegacyPod
from translation.reading import arbiter
from translation.reading.kept_keys import kept_name
from translation.vocabularies.hami.translate import VOCABULARY as HAMI
from translation.vocabularies.koordinator.replacements import takes_whole_gpus
from translation.vocabularies.nvidia import SHARED_SUFFIX, keep_setting, mig_profile
from translation.vocabularies.nvidia import VOCABULARY as NVIDIA
from translation.vocabularies.resources import NAME as RESOURCES


def is_native(
    legacy: LegacyPod, snapshot: TranslationSnapshot, options: TranslationOptions
) -> bool:
    """Return True if Kubernetes itself allocates the pod's devices (KEP-5004).

    It allocates whole devices only: no share, no filter, no annotation. A class whose driver never
    published a device allocates none, so its keys are translated where another GPU driver has. So are
    keys whose class gives other devices than they mean, unless the settings say otherwise, and keys whose class
    reaches a driver of the bridge: kube-scheduler would make a claim that nobody may allocate. A pod
    of another scheduler is translated, be it one that the settings keep: see `makes_claims_of_names`.
    """
    # First what nearly always decides.
    if not legacy.keys() <= snapshot.extended_resources.keys():
        return False
    if options.native is NativePolicy.TRANSLATE:
        return False
    if options.native is NativePolicy.EXACT and legacy.keys() & snapshot.wide_mappings.keys():
        return False
    if _reaches_owned_driver(legacy, snapshot):
        return False
    if not makes_claims_of_names(legacy.scheduler_name, snapshot.bridge_scheduler):
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


def makes_claims_of_names(name: str, bridge_scheduler: str) -> bool:
    """Return True if a scheduler makes the claims of names that classes map: kube-scheduler alone, and so the bridge's.

    Others find devices for such a name only where a device plugin offers it, also one that allocates claims.
    Without claims the default scheduler would not keep the pods of a legacy system's from its nodes.

    Args:
        name: schedulerName of a pod.
        bridge_scheduler: schedulerName of the bridge.

    Source: kubernetes/enhancements, keps/sig-scheduling/5004-dra-extended-resource; `translation.cluster.component_statements`
    has releases of others.
    """
    return name in {"", DEFAULT_SCHEDULER_NAME, bridge_scheduler}


def _reaches_owned_driver(legacy: LegacyPod, snapshot: TranslationSnapshot) -> bool:
    """Return True if the class of a key selects devices of a driver that the bridge owns."""
    keys, owned_drivers = legacy.keys(), snapshot.owned_drivers
    return bool(owned_drivers) and any(
        snapshot.class_drivers.get(snapshot.extended_resources[key], frozenset()) & owned_drivers
        for key in keys
    )


def find_wide_mappings(
    legacy: LegacyPod, snapshot: TranslationSnapshot, options: TranslationOptions
) -> Iterator[Finding]:
    """Yield a warning for each key with a DeviceClass that gives other devices than it means.

    Nothing for a pod that Kubernetes would not serve even if the class gave what the key means.
    """
    wide = snapshot.wide_mappings
    if not wide or wide.keys().isdisjoint(legacy.keys()):
        return
    as_mapped = msgspec.structs.replace(options, native=NativePolicy.MAPPED)
    reported: set[str] = set()
    for container in legacy.containers if is_native(legacy, snapshot, as_mapped) else ():
        for key in sorted(container.limits.keys() & wide.keys() - reported):
            reported.add(key)
            yield wide_mapping_finding(wide[key], container.limit_path(key), options)


def wide_mapping_finding(
    mapping: WideMapping, path: FieldPath, options: TranslationOptions
) -> Finding:
    """Return the finding on a mapping, at the class or at a key of a pod."""
    return warning(
        Code.MAPPING_TOO_WIDE,
        path,
        f"DeviceClass {printable(mapping.device_class)} maps {printable(mapping.resource)}, and "
        f"{mapping.reason}",
        wide_mapping_fix(mapping.resource, options.renamed_keys, options.kept),
    )


def wide_mapping_fix(
    resource: str, renamed_keys: Mapping[str, str], kept_names: Collection[str]
) -> str:
    """Return the fix for a resource name with a DeviceClass that gives other devices than it means.

    Args:
        resource: The name that the class maps.
        renamed_keys: Names of the cluster to those of vocabularies that they stand for.
        kept_names: The vocabularies and resource names that stay with their device plugin.
    """
    if name := kept_name(resource, kept_names):
        return f"take the name from the class, since it stays with its device plugin ({keep_setting(name)})"
    meaning = renamed_keys.get(resource, resource)
    whole = meaning.removesuffix(SHARED_SUFFIX)
    if whole == meaning or not mig_profile(whole):
        return "map the name by a DeviceClass of its own that selects only these devices"
    return (
        f"take the name from the class, since no driver publishes replicas of a MIG device, and request the whole one, {whole}; or "
        f"leave the name with its device plugin ({keep_setting(resource)})"
    )
