"""The translation of a pod: whether to translate it, which vocabularies own it, and its claims.

The decision is pure, and the same for the webhook and the command line. It has two halves: this one
reads the pod and the snapshot and builds the translation record, with only the facts that matter;
`translation.record.derive` compiles claims from the record alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, has_errors
from translation.cluster.cluster_features import check_shares
from translation.cluster.device_classes import (
    check_device_classes,
    check_published_devices,
    check_published_models,
)
from translation.cluster.network_claims import expand_networks
from translation.cluster.plugin_devices import check_device_plugins
from translation.cluster.routing import RoutedPod, check_key_drivers, route
from translation.cluster.schedulers import check_foreign_groups, check_replaced_scheduler
from translation.cluster.snapshot import (
    TranslationOptions,
    TranslationSnapshot,
    vocabularies_in_force,
)
from translation.compiling.claims import Claim
from translation.model.choices import Choices, InitContainers
from translation.model.intents import (
    Alignment,
    DeviceKind,
    Intent,
    LegacyPod,
    Scope,
    Variable,
    Vocabulary,
)
from translation.preflight.checks import (
    check_class_configs,
    check_environment,
    check_existing_variables,
    check_limit_ranges,
    check_mappings,
    check_node_labels,
    is_native,
    native_finding,
    skip_reasons,
)
from translation.preflight.quota_checks import check_quotas, quota_amounts
from translation.preflight.share_differences import (
    check_enforced_limits,
    check_granted_memory,
    check_multus,
    check_uncapped_cores,
)
from translation.profiles.device_facts import UNKNOWN, Facts
from translation.profiles.profile import Profile, Sharing
from translation.profiles.resource_profiles import resource_profiles, resource_providers
from translation.reading import arbiter
from translation.reading.foreign_quotas import check_foreign_quotas
from translation.reading.legacy_pod import check_requests
from translation.reading.renamed_keys import (
    check_renamed_keys,
    present_names,
    with_vocabulary_names,
)
from translation.reading.workload_profiles import expand_profile
from translation.record.derive import Readings, compile_readings, provider, read_keys, serves
from translation.record.record import RECORDED, TranslationRecord, build_record, excess_of
from translation.vocabularies.hami.translate import VOCABULARY as HAMI
from translation.vocabularies.resources import NAME as RESOURCES

SEPARATE: Final = InitContainers.SEPARATE


class Untouched(msgspec.Struct, frozen=True, kw_only=True):
    """The pod is left as it is."""

    findings: tuple[Finding, ...] = ()


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """The pod is invalid, or a claim cannot express it; at least one finding is an error."""

    findings: tuple[Finding, ...]


class Translated(msgspec.Struct, frozen=True, kw_only=True):
    """The translation of a pod.

    Attributes:
        annotation: The record, encoded.
        claims: With the containers that use them.
        variables: Environment variables to add where a container does not set them.
        scheduler_name: The scheduler that gets the pod; None for no change.
    """

    record: TranslationRecord
    annotation: str
    claims: tuple[Claim, ...]
    variables: tuple[Variable, ...] = ()
    scheduler_name: str | None = None
    findings: tuple[Finding, ...] = ()


Outcome = Untouched | Refused | Translated


def translate(
    legacy: LegacyPod,
    *,
    namespace: str,
    snapshot: TranslationSnapshot,
    options: TranslationOptions,
    passes_through: bool = True,
) -> Outcome:
    """Translate a pod that carries no translation record.

    The snapshot's templates are not read: a name that is in use changes no translation.

    Args:
        namespace: The pod's namespace; at admission the pod's own field may be empty.
        passes_through: Leave a pod untouched if Kubernetes itself can allocate its devices.
    """
    legacy, network_findings = expand_networks(legacy, namespace, snapshot, options)
    if not arbiter.requests_devices(legacy, vocabularies_in_force(options, snapshot.profiles)):
        return Untouched(findings=network_findings)
    reasons = skip_reasons(legacy, namespace, snapshot, options)
    if reasons:
        return Untouched(findings=tuple(reasons))
    faults = (
        *check_requests(legacy),
        *check_renamed_keys(legacy, options.renamed_keys),
        *arbiter.check_conflicts(with_vocabulary_names(legacy, options.renamed_keys)),
    )
    if faults:
        return Refused(findings=faults)
    if passes_through and is_native(legacy, snapshot, options):
        mapping_findings = check_mappings(legacy, snapshot, options)
        return Untouched(findings=(native_finding(legacy, snapshot), *mapping_findings))
    plugin_findings = (
        tuple(check_device_plugins(legacy, snapshot, options)) if passes_through else ()
    )
    if plugin_findings:
        return Untouched(findings=plugin_findings)
    expanded = expand_profile(legacy, namespace, snapshot.workload_profiles)
    outcome = _translate_keys(expanded.pod, namespace, snapshot, options)
    findings = (*expanded.locate(outcome.findings), *network_findings)
    return msgspec.structs.replace(outcome, findings=findings)


def _translate_keys(
    legacy: LegacyPod,
    namespace: str,
    snapshot: TranslationSnapshot,
    options: TranslationOptions,
) -> Outcome:
    vocabularies = vocabularies_in_force(options, snapshot.profiles)
    owners = [
        vocabularies[name]
        for name in arbiter.owners(
            legacy, default_gpu_owner=options.default_gpu_owner, vocabularies=vocabularies
        )
    ]
    legacy = msgspec.structs.replace(legacy, choices=_relevant_choices(legacy, owners, options))
    owned_keys = arbiter.divide_keys(legacy.keys(), owners)
    readings = read_keys(legacy, owners, owned_keys)
    routed_pod = RoutedPod(
        legacy=legacy,
        owned=owned_keys,
        readings=readings,
        snapshot=snapshot,
        options=options,
    )
    providers = _providers(routed_pod)
    facts = {
        profile.driver: _relevant_facts(
            readings, providers, profile, snapshot.facts.get(profile.driver, {})
        )
        for profile in providers.values()
    }
    derivation = compile_readings(readings, legacy, providers, facts)
    record = build_record(
        legacy,
        owners,
        [(name, profile, facts[profile.driver]) for name, profile in providers.items()],
    )
    annotation = record.encode()
    findings = (
        *_check_size(record, annotation),
        *check_key_drivers(routed_pod),
        *derivation.findings,
        *check_uncapped_cores(readings, providers, snapshot),
        *check_granted_memory(readings, providers, snapshot),
        *check_enforced_limits(legacy, readings, providers, snapshot),
        *check_multus(legacy, readings, providers),
        *check_shares(derivation.claims, snapshot),
        *check_device_classes(derivation.claims, snapshot, options),
        *check_published_devices(derivation.claims, providers.values(), snapshot, options),
        *dict.fromkeys(check_published_models(readings, providers, snapshot)),
        *check_class_configs(derivation.claims, providers.values(), snapshot),
        *check_quotas(
            derivation.claims,
            quota_amounts(legacy, readings, vocabularies),
            legacy.scopes,
            namespace=namespace,
            snapshot=snapshot,
            options=options,
        ),
        *check_limit_ranges(legacy, namespace, snapshot),
        *check_replaced_scheduler(legacy, namespace, snapshot, options),
        *check_foreign_groups(
            legacy, options, opted_in=snapshot.is_opted_in(namespace, legacy.labels)
        ),
        *check_foreign_quotas(
            legacy,
            owners,
            snapshot.foreign_quotas.get(namespace, ()),
            options.scheduler_for(
                legacy.scheduler_name, opted_in=snapshot.is_opted_in(namespace, legacy.labels)
            ),
        ),
        *check_mappings(legacy, snapshot, options),
        *check_node_labels(legacy),
        *check_existing_variables(legacy, derivation.variables),
        *check_environment(legacy),
    )
    if has_errors(findings):
        return Refused(findings=findings)
    if not derivation.claims and not _has_amounts(legacy):
        return Untouched(findings=findings)
    scheduler = options.scheduler_for(
        legacy.scheduler_name, opted_in=snapshot.is_opted_in(namespace, legacy.labels)
    )
    return Translated(
        record=record,
        annotation=annotation,
        claims=derivation.claims,
        variables=derivation.variables,
        scheduler_name=scheduler if scheduler != legacy.scheduler_name else None,
        findings=findings,
    )


def _relevant_choices(
    legacy: LegacyPod, owners: Sequence[Vocabulary], options: TranslationOptions
) -> Choices:
    """Return the choices with the defaults of a record where they make no difference."""
    choices = options.choices
    renamed_keys = present_names(legacy, options.renamed_keys)
    if renamed_keys or choices.hami != RECORDED.hami:
        owned_by_hami = any(owner.name == HAMI.name for owner in owners)
        choices = msgspec.structs.replace(
            choices,
            renamed_keys=renamed_keys,
            hami=choices.hami if owned_by_hami else RECORDED.hami,
        )
    runs_first = any(
        container.init and not container.sidecar and container.limits
        for container in legacy.containers
    )
    return choices if runs_first else msgspec.structs.replace(choices, init_containers=SEPARATE)


def _check_size(record: TranslationRecord, annotation: str) -> Iterator[Finding]:
    excess = excess_of(record, annotation)
    if excess is not None:
        yield error(
            Code.TOO_LONG,
            FieldPath.of("metadata", "annotations"),
            f"the translation record of the pod would be {excess}",
            "shorten the annotations about its devices",
        )


def _has_amounts(legacy: LegacyPod) -> bool:
    return any(amount for container in legacy.containers for amount in container.limits.values())


# --- providers ------------------------------------------------------------------------------------


def _providers(pod: RoutedPod) -> Mapping[str, Profile]:
    """Return vocabulary name to profile, for the owners and for their fallback providers.

    HAMi's modes mig and mps are served by the profile of the device plugin's vocabulary, and
    Koordinator's NICs by the profile of the RDMA vocabulary.
    """
    drivers = {**pod.options.profiles, **route(pod)}
    configured_profiles = {
        name: pod.snapshot.profiles[driver]
        for name, driver in drivers.items()
        if driver in pod.snapshot.profiles
    }
    # In the order of the owners, which the record keeps: it decides whose key a shared one is.
    own: dict[str, Profile] = {}
    for name, reading in pod.readings.items():
        if name == RESOURCES:
            serving = resource_profiles(pod.snapshot.profiles, drivers)
            own.update(resource_providers(reading.intents, serving))
        elif name in configured_profiles:
            own[name] = configured_profiles[name]
    fallbacks = {
        _fallback_provider(intent, configured_profiles, own)
        for vocabulary, reading in pod.readings.items()
        for intent in reading.intents
        if vocabulary in own and vocabulary != RESOURCES and not serves(own[vocabulary], intent)
    }
    return own | {
        name: configured_profiles[name] for name in configured_profiles if name in fallbacks
    }


def _fallback_provider(
    intent: Intent, configured_profiles: Mapping[str, Profile], own: Mapping[str, Profile]
) -> str | None:
    """Return the vocabulary whose profile serves an intent; another owner's first."""
    # Profiles of resource names serve nothing else.
    first = [name for name in own if name in configured_profiles]
    names = (*first, *(name for name in configured_profiles if name not in own))
    return next((name for name in names if serves(configured_profiles[name], intent)), None)


# --- relevant facts -------------------------------------------------------------------------------


def _relevant_facts(
    readings: Readings,
    providers: Mapping[str, Profile],
    profile: Profile,
    known_facts: Mapping[DeviceKind, Facts],
) -> Mapping[DeviceKind, Facts]:
    """Return only those facts that the intents' claims depend on.

    So a record, and with it the name of its template, changes only when a claim does.
    """
    provided_intents = [
        (intent, reading.alignment)
        for vocabulary, reading in readings.items()
        for intent in reading.intents
        if provider(intent, vocabulary, providers) is profile
    ]
    relevant: dict[DeviceKind, Facts] = {}
    for kind, facts in known_facts.items():
        of_kind = [
            (intent, alignment)
            for intent, alignment in provided_intents
            if intent.kind is kind or (kind is DeviceKind.GPU and _is_part_of_gpu(intent))
        ]
        relevant[kind] = msgspec.structs.replace(
            _relevant_to(profile, kind, facts, [intent for intent, _ in of_kind]),
            per_root=_relevant_group_sizes(facts, of_kind),
        )
    return relevant


def _is_part_of_gpu(intent: Intent) -> bool:
    """Return whether a MIG device depends on the memory of its GPU."""
    return intent.kind is DeviceKind.MIG and intent.memory_percent is not None


def _relevant_group_sizes(
    facts: Facts, intents: Sequence[tuple[Intent, Alignment | None]]
) -> tuple[int, ...] | None:
    """Return the numbers of devices per PCIe root where devices are divided into groups.

    Elsewhere it only matters whether known devices publish no root.
    """
    rooted_intents = [
        (intent, alignment)
        for intent, alignment in intents
        if intent.within is Scope.PCIE_ROOT or (alignment and intent.kind in alignment.kinds)
    ]
    if not rooted_intents or facts == UNKNOWN:
        return None
    if facts.per_root is None:
        return ()
    divides = any(
        alignment and intent.kind is alignment.kinds[0] and intent.count > 1
        for intent, alignment in rooted_intents
    )
    return facts.per_root if divides else None


def _relevant_to(
    profile: Profile, kind: DeviceKind, facts: Facts, intents: Sequence[Intent]
) -> Facts:
    device = profile.devices.get(kind)
    if device is None or not intents:
        return UNKNOWN
    takes_all = any(intent.takes_all_memory for intent in intents)
    by_size = any(intent.memory_percent is not None for intent in intents)
    by_profile = kind is DeviceKind.MIG and any(intent.memory is not None for intent in intents)
    default_is_part = takes_all and facts.default_is_part
    return Facts(
        sizes=facts.sizes if by_size or by_profile or default_is_part else None,
        mixed=facts.mixed
        and any(intent.memory_percent is not None and intent.count > 1 for intent in intents),
        shared=facts.shared if device.sharing is Sharing.PUBLISHED else None,
        default_is_part=default_is_part,
        replicas=facts.replicas
        if any(_depends_on_replicas(intent, facts) for intent in intents)
        else None,
        partitions=_relevant_partitions(facts, intents),
    )


def _relevant_partitions(facts: Facts, intents: Sequence[Intent]) -> tuple[int, ...] | None:
    if any(intent.partition for intent in intents):
        return () if facts.partitions is None and facts != UNKNOWN else facts.partitions
    return facts.partitions if any(intent.exclusive for intent in intents) else None


def _depends_on_replicas(intent: Intent, facts: Facts) -> bool:
    return intent.replica or (intent.exclusive and bool(facts.shared) and bool(facts.replicas))
