"""The first step of a translation: the vocabularies that own a pod's keys, and their requests."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from findings.finding import Finding
from translation.cluster.network_claims import expand_networks
from translation.cluster.snapshot import (
    TranslationOptions,
    TranslationSnapshot,
    vocabularies_in_force,
)
from translation.model.choices import Choices, InitContainers
from translation.model.intents import LegacyPod, Vocabulary
from translation.model.npu_chips import present_chips
from translation.preflight.chain.preconditions import PRECONDITIONS, first_stop
from translation.preflight.model.inputs import PodInput, Stop
from translation.reading import arbiter
from translation.reading.renamed_keys import present_names
from translation.reading.workload_profiles import ExpandedPod, expand_profile
from translation.record.derive import Readings, read_keys
from translation.record.record import RECORDED
from translation.vocabularies.aliyun import VOCABULARY as ALIYUN
from translation.vocabularies.ascend import DOMAIN as ASCEND_DOMAIN
from translation.vocabularies.hami.translate import VOCABULARY as HAMI
from translation.vocabularies.volcano import VOCABULARY as VOLCANO

SEPARATE: Final = InitContainers.SEPARATE


class PodReading(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of a pod as their vocabularies read them.

    Attributes:
        legacy: The pod with the annotations of its profile and networks, and the choices that matter to it.
        namespace: The pod's namespace.
        vocabularies: Vocabulary name to the vocabulary, of all that are in force.
        owners: The vocabularies that own keys of the pod, in the order that decides shared keys.
        owned_keys: Vocabulary name to the keys of the pod that it owns.
        readings: The intents of each owner.
        scheduler: The scheduler of the translated pod; None where it is translated for no scheduler.
        expanded: The pod with its profile, which locates findings about annotations of the profile.
        network_findings: The findings about networks that do not become claims.
    """

    legacy: LegacyPod
    namespace: str
    snapshot: TranslationSnapshot
    options: TranslationOptions
    vocabularies: Mapping[str, Vocabulary]
    owners: Sequence[Vocabulary]
    owned_keys: Mapping[str, frozenset[str]]
    readings: Readings
    scheduler: str | None
    expanded: ExpandedPod
    network_findings: tuple[Finding, ...]

    @property
    def has_amounts(self) -> bool:
        """Return True if a container has a device key with an amount above zero."""
        containers = self.legacy.containers
        return any(amount for container in containers for amount in container.limits.values())


def read_pod(
    legacy: LegacyPod,
    *,
    namespace: str,
    snapshot: TranslationSnapshot,
    options: TranslationOptions,
    passes_through: bool,
) -> PodReading | Stop:
    """Read the keys of a pod, unless a precondition does not hold; arguments as of `translate`."""
    legacy, network_findings = expand_networks(legacy, namespace, snapshot, options)
    inputs = PodInput(
        legacy=legacy,
        namespace=namespace,
        snapshot=snapshot,
        options=options,
        passes_through=passes_through,
        network_findings=network_findings,
    )
    stop = first_stop(PRECONDITIONS, inputs)
    if stop is None:
        return _read_keys(inputs)
    return _with_errors_of_keys(stop, inputs) if stop.is_readable else stop


def _with_errors_of_keys(stop: Stop, inputs: PodInput) -> Stop:
    """Return a stop with the errors that reading the keys finds, so that one correction mends all."""
    reading = _read_keys(inputs)
    errors = (
        finding
        for read in reading.readings.values()
        for finding in read.findings
        if finding.is_error
    )
    return Stop((*stop.findings, *reading.expanded.locate(tuple(errors))))


def _read_keys(inputs: PodInput) -> PodReading:
    snapshot, options = inputs.snapshot, inputs.options
    expanded = expand_profile(inputs.legacy, inputs.namespace, snapshot.workload_profiles)
    vocabularies = vocabularies_in_force(options, snapshot.profiles)
    owned_keys = arbiter.owned_keys(
        expanded.pod, default_gpu_owner=inputs.default_gpu_owner, vocabularies=vocabularies
    )
    owners = [vocabularies[name] for name in owned_keys]
    choices = _relevant_choices(expanded.pod, owners, options)
    legacy = msgspec.structs.replace(expanded.pod, choices=choices)
    return PodReading(
        legacy=legacy,
        namespace=inputs.namespace,
        snapshot=snapshot,
        options=options,
        vocabularies=vocabularies,
        owners=owners,
        owned_keys=owned_keys,
        readings=read_keys(legacy, owners, owned_keys),
        scheduler=options.scheduler_for(
            legacy.scheduler_name, snapshot.bridge_scheduler, opted_in=inputs.opted_in
        ),
        expanded=expanded,
        network_findings=inputs.network_findings,
    )


def _relevant_choices(
    legacy: LegacyPod, owners: Sequence[Vocabulary], options: TranslationOptions
) -> Choices:
    """Return the choices, with the defaults of a record if they make no difference."""
    choices = options.choices
    renamed_keys = present_names(legacy, options.renamed_keys)
    if renamed_keys or choices.hami != RECORDED.hami:
        owned_by_hami = any(owner.name == HAMI.name for owner in owners)
        choices = msgspec.structs.replace(
            choices,
            renamed_keys=renamed_keys,
            hami=choices.hami if owned_by_hami else RECORDED.hami,
        )
    if choices.ascend_chips:
        keys = legacy.keys()
        names = {renamed_keys.get(key, key) for key in keys}
        chips = present_chips(names, choices.ascend_chips, ASCEND_DOMAIN)
        choices = msgspec.structs.replace(choices, ascend_chips=chips)
    if choices.aliyun_memory_unit != RECORDED.aliyun_memory_unit and all(
        owner.name != ALIYUN.name for owner in owners
    ):
        choices = msgspec.structs.replace(choices, aliyun_memory_unit=RECORDED.aliyun_memory_unit)
    if choices.volcano_memory_factor != RECORDED.volcano_memory_factor and all(
        owner.name != VOLCANO.name for owner in owners
    ):
        factor = RECORDED.volcano_memory_factor
        choices = msgspec.structs.replace(choices, volcano_memory_factor=factor)
    runs_first = any(
        container.init and not container.sidecar and container.limits
        for container in legacy.containers
    )
    return choices if runs_first else msgspec.structs.replace(choices, init_containers=SEPARATE)
