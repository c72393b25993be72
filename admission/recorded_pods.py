"""The translation record of a pod under review: its credibility, and the pod without it; pure.

The record is untrusted. What is checked here is that it agrees with the pod that carries it and with
the settings; whether its keys would be translated at all is decided in `admission.pods`.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, has_errors
from findings.text import printable, quote_text
from kube.api.core import Container, Pod, ResourceRequirements
from kube.jsonpatch import apply
from kube.names import REQUEST_ANNOTATION
from kube.quantity import Quantity
from translation.cluster.snapshot import TranslationSnapshot
from translation.compiling.claims import MAX_LABEL, Claim
from translation.model.intents import Vocabulary
from translation.pipeline.patch import restore_pod
from translation.reading import arbiter
from translation.reading.legacy_pod import container_paths, containers, device_keys
from translation.record.derive import Derivation, derive
from translation.record.record import (
    RecordError,
    RecordVersionError,
    TranslationRecord,
    decode_record,
)

MAX_USERS: Final = 5
"""Containers that are named in a message."""

ANNOTATION_PATH: Final = FieldPath.of("metadata", "annotations").key(REQUEST_ANNOTATION)


def read_record(
    pod: Pod, snapshot: TranslationSnapshot
) -> tuple[TranslationRecord | None, Derivation]:
    """Return the pod's record and its derivation; None and the reasons if it is invalid."""
    try:
        record = decode_record(pod.annotations[REQUEST_ANNOTATION])
    except RecordError as fault:
        return None, Derivation(findings=(malformed_finding(fault),))
    # Cheap checks before anything is compiled.
    paths = container_paths(pod)
    unknown = next(
        (container.name for container in record.containers if container.name not in paths), None
    )
    if unknown is not None:
        return None, Derivation(findings=(_unknown_container_finding(unknown),))
    derivation = derive(record, snapshot.profiles, paths, snapshot.profile_versions)
    if has_errors(derivation.findings):
        errors = (finding for finding in derivation.findings if finding.is_error)
        return None, Derivation(findings=tuple(map(at_annotation, errors)))
    return record, derivation


def malformed_finding(fault: RecordError) -> Finding:
    """Return the finding about an annotation that is not a record of this version."""
    is_other_version = isinstance(fault, RecordVersionError)
    return error(
        Code.TRANSLATION_RECORD_MALFORMED,
        ANNOTATION_PATH,
        printable(str(fault)[:200]),
        "create the pod from its legacy manifest, which is translated by this version"
        if is_other_version
        else "remove the annotation; the webhook writes it",
    )


def _unknown_container_finding(name: str) -> Finding:
    return error(
        Code.TRANSLATION_RECORD_FORGED,
        ANNOTATION_PATH,
        f"names container {quote_text(name[:MAX_LABEL])}, which the pod does not have",
        "remove the annotation; the webhook writes it",
    )


def record_changed_finding(record_text: str | None) -> Finding:
    """Return the finding about an annotation that an update changes; None if there was none."""
    if record_text is None:
        return error(
            Code.TRANSLATION_RECORD_FORGED,
            ANNOTATION_PATH,
            "can only be set when a pod is created, and this pod was created without it",
            "remove it",
        )
    return error(
        Code.TRANSLATION_RECORD_CHANGED,
        ANNOTATION_PATH,
        "the pod's claims derive from it, so it cannot change",
        "restore it; to change the devices, create the pod again",
    )


def at_annotation(finding: Finding) -> Finding:
    """Return a finding about a recorded key, at the annotation, since the pod does not have the key."""
    return msgspec.structs.replace(finding, path=ANNOTATION_PATH)


def check_recorded_keys(
    record: TranslationRecord, vocabularies: Mapping[str, Vocabulary]
) -> Iterator[Finding]:
    """Yield an error for a recorded key that is not translated here."""
    for container in record.containers:
        keys = frozenset(arbiter.find_device_keys(container.limits.keys(), vocabularies))
        for key in sorted(container.limits.keys() - keys - arbiter.companions(keys)):
            yield error(
                Code.TRANSLATION_RECORD_MALFORMED,
                ANNOTATION_PATH,
                f"records {quote_text(key)}, which is not translated here",
                "remove the annotation, if the pod's templates exist; else the key",
            )


def check_claims(pod: Pod, claims: Sequence[Claim]) -> Iterator[Finding]:
    """Yield an error for each claim of the record that the pod does not use."""
    for claim in _unused_claims(pod, claims):
        yield error(
            Code.TRANSLATION_RECORD_FORGED,
            ANNOTATION_PATH,
            f"requires ResourceClaimTemplate {claim.template} for {_user_names(claim)}, "
            "but the pod does not use it so",
            "remove the annotation; the webhook writes it",
        )


def _unused_claims(pod: Pod, claims: Sequence[Claim]) -> Iterator[Claim]:
    """Yield the claims of the record that no entry of the pod's claims is left for.

    Claims with equal specs have one template, and a container may use several of them: an init container
    uses its own and one of an app container. So which entry is which claim is a bipartite matching.
    """
    labels_by_template: dict[str, set[str]] = {}
    for entry in pod.spec.resource_claims or ():
        if entry.resource_claim_template_name is not None:
            labels_by_template.setdefault(entry.resource_claim_template_name, set()).add(entry.name)
    labels_by_use: dict[tuple[str, str | None], set[str]] = {}
    for _, container in containers(pod):
        for use in container.claims:
            labels_by_use.setdefault((container.name, use.request), set()).add(use.name)
    claims_by_template: dict[str, list[Claim]] = {}
    for claim in claims:
        claims_by_template.setdefault(claim.template, []).append(claim)
    for template, equal_claims in claims_by_template.items():
        candidates = [
            sorted(
                labels_by_template.get(template, set()).intersection(
                    *(labels_by_use.get((use.container, use.request), ()) for use in claim.uses)
                )
            )
            for claim in equal_claims
        ]
        for index in _unmatched_indexes(candidates):
            yield equal_claims[index]


def _unmatched_indexes(candidates: Sequence[Sequence[str]]) -> Iterator[int]:
    """Yield the indexes that get no label of their own in a maximum matching, found by augmenting paths.

    Args:
        candidates: The labels that each index may get.
    """
    index_by_label: dict[str, int] = {}

    def is_matched(index: int, tried: set[str]) -> bool:
        # More labels than indexes make no difference: one is always left.
        for label in candidates[index][: len(candidates)]:
            if label in tried:
                continue
            tried.add(label)
            if label not in index_by_label or is_matched(index_by_label[label], tried):
                index_by_label[label] = index
                return True
        return False

    for index in range(len(candidates)):
        if not is_matched(index, set()):
            yield index


def _user_names(claim: Claim) -> str:
    """Return the untrusted names of the containers that use a claim."""
    users = sorted({use.container for use in claim.uses})
    names = [printable(name[:MAX_LABEL]) or '""' for name in users[:MAX_USERS]]
    return ", ".join(names + ["others"] * (len(users) > MAX_USERS))


def keys_by_container(
    pod: Pod, vocabularies: Mapping[str, Vocabulary]
) -> Mapping[str, Collection[str]]:
    """Return the device keys of each container, by its name."""
    return {
        container.name: device_keys(container, vocabularies) for _, container in containers(pod)
    }


def new_keys(
    pod: Pod, old: Pod, vocabularies: Mapping[str, Vocabulary]
) -> Mapping[str, Collection[str]]:
    """Return the device keys of each container that are new, or have other amounts than before, by its name.

    A pod may have keys beside its claims, such as one that stayed with its plugin. No update can remove them.
    """
    before = {container.name: container for _, container in containers(old)}
    return {
        container.name: [
            key
            for key in device_keys(container, vocabularies)
            if (old_container := before.get(container.name)) is None
            or container.limits.get(key) != old_container.limits.get(key)
            or container.requests.get(key) != old_container.requests.get(key)
        ]
        for _, container in containers(pod)
    }


def check_amounts(
    pod: Pod,
    record: TranslationRecord,
    keys: Mapping[str, Collection[str]],
    *,
    only_recorded: bool = False,
    defaults: Mapping[str, Collection[Quantity]] = {},
) -> Iterator[Finding]:
    """Yield an error for each device key with another amount than the recorded one.

    Args:
        keys: Container name to the device keys that are looked at.
        only_recorded: Ignore keys that were not recorded.
        defaults: Key to amounts that a LimitRange may have set again since.
    """
    limits = {container.name: container.limits for container in record.containers}
    for path, container in containers(pod):
        recorded_limits = limits.get(container.name, {})
        for key in sorted(keys.get(container.name, ())):
            if key not in recorded_limits and only_recorded:
                continue
            amounts = _amounts(container, key)
            allowed_amounts = {
                recorded_limits.get(key),
                *(defaults.get(key, ()) if key in recorded_limits else ()),
            }
            if not allowed_amounts.issuperset(amounts):
                yield error(
                    Code.TRANSLATION_RECORD_CHANGED,
                    path.child("resources", "limits").key(key),
                    "a pod's devices cannot change after its creation: recorded "
                    f"{recorded_limits.get(key, 'nothing')}, found {amounts[0]}",
                    "delete the pod and create it again",
                )


def _amounts(container: Container, key: str) -> list[Quantity]:
    return [amounts[key] for amounts in (container.limits, container.requests) if key in amounts]


def check_profiles(record: TranslationRecord, current: TranslationRecord) -> Iterator[Finding]:
    """Yield an error for each vocabulary that another profile, or none, serves in a new translation."""
    names: dict[str, list[str]] = {}
    for used in current.profiles:
        names.setdefault(used.vocabulary, []).append(used.name)
    for used in record.profiles:
        if used.name not in names.get(used.vocabulary, ()):
            driver_names = " and ".join(names.get(used.vocabulary, ("none",)))
            yield error(
                Code.PROFILE_CHANGED,
                ANNOTATION_PATH,
                f"vocabulary {used.vocabulary} is served by {driver_names} here, not by {used.name}",
                "create the pod again from its legacy manifest",
            )


def restored_view(pod: Pod, record: TranslationRecord, claims: Sequence[Claim]) -> Pod:
    """Return a translated pod as it was before; the counterpart of `restore_pod` for typed pods."""
    templates = {claim.template for claim in claims}
    entries = pod.spec.resource_claims or ()
    recorded_limits = {container.name: container.limits for container in record.containers}
    return msgspec.structs.replace(
        pod,
        spec=msgspec.structs.replace(
            pod.spec,
            containers=_with_limits(pod.spec.containers, recorded_limits),
            init_containers=_with_limits(pod.spec.init_containers, recorded_limits),
            resource_claims=tuple(
                entry for entry in entries if entry.resource_claim_template_name not in templates
            ),
        ),
    )


def restored_document(
    document: Mapping[str, Any], pod: Pod, snapshot: TranslationSnapshot
) -> Mapping[str, Any] | None:
    """Return a translated pod as its author wrote it; None for a pod that does not agree with its record.

    Args:
        document: The pod as it was parsed; not changed.
        pod: The typed view of the same document.
        snapshot: The snapshot with the profiles that the record names.
    """
    if REQUEST_ANNOTATION not in pod.annotations:
        return None
    record, derivation = read_record(pod, snapshot)
    if record is None or any(check_claims(pod, derivation.claims)):
        return None
    operations = restore_pod(document, derivation.claims, recorded_limits(record))
    restored: Mapping[str, Any] = apply(document, operations)
    return restored


def _with_limits(
    containers: Sequence[Container] | None, recorded_limits: Mapping[str, Mapping[str, Quantity]]
) -> tuple[Container, ...]:
    return tuple(
        msgspec.structs.replace(
            container,
            resources=msgspec.structs.replace(
                container.resources or ResourceRequirements(),
                limits={**container.limits, **recorded_limits[container.name]},
                requests={
                    key: amount
                    for key, amount in container.requests.items()
                    if key not in recorded_limits[container.name]
                },
            ),
        )
        if recorded_limits.get(container.name)
        else container
        for container in containers or ()
    )


def recorded_limits(record: TranslationRecord) -> Mapping[str, Mapping[str, str]]:
    """Return container name to the recorded keys and amounts, as texts."""
    return {
        container.name: {key: str(amount) for key, amount in container.limits.items()}
        for container in record.containers
    }
