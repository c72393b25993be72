"""The effect of another version of Drawbridge on the translations of a cluster. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from answers.model.findings import reference
from findings.finding import Severity
from kube.api.core import FINISHED_PHASES
from kube.api.workloads import pod_path, resolve_path
from kube.manifests.source import SourceObject
from kube.names import REQUEST_ANNOTATION, SIGNATURE_ANNOTATION
from migration.upgrade.model import UpgradeCode, UpgradeFinding, finding
from translation.profiles.profile import Profile
from translation.record.record import RecordError, RecordVersionError, decode_record
from translation.record.signature import VERSION as SIGNATURE_VERSION


class _Translation(msgspec.Struct, frozen=True, kw_only=True):
    """A translation record that is stored.

    Attributes:
        is_pod: It is a live pod's; else a workload's, or a manifest's, whose pods are still to come.
        waits: The pod has not all of its claims yet.
    """

    object: str
    text: str
    signature: str
    is_pod: bool
    waits: bool


def check_product(
    objects: Iterable[SourceObject],
    profiles: Mapping[str, Profile],
    kept_versions: Mapping[str, Profile],
    namespace: str,
) -> Iterator[UpgradeFinding]:
    """Yield the findings of this version of Drawbridge about translations by another one.

    Args:
        objects: The cluster's objects, and manifests.
        profiles: Driver to profile, of this version.
        kept_versions: Content hash to a version of a profile that the cluster keeps.
        namespace: The namespace for objects that name none.
    """
    translations = list(_translations(objects, namespace))
    versions: dict[str, list[_Translation]] = {}
    hashes: dict[str, list[_Translation]] = {}
    for translation in translations:
        try:
            record = decode_record(translation.text)
        except RecordVersionError as fault:
            versions.setdefault(str(fault), []).append(translation)
            continue
        except RecordError:
            continue  # Nobody translated it.
        for used in record.profiles:
            profile = profiles.get(used.name)
            if used.hash in kept_versions:
                continue
            if profile is None or profile.content_hash != used.hash:
                hashes.setdefault(used.name, []).append(translation)
    for message, concerned in sorted(versions.items()):
        yield from _differing(
            UpgradeCode.TRANSLATION_VERSION_DIFFERS,
            message,
            concerned,
        )
    for driver, concerned in sorted(hashes.items()):
        word = "another version of" if driver in profiles else "no"
        yield from _differing(
            UpgradeCode.PROFILE_DIFFERS,
            f"this version of Drawbridge has {word} profile of driver {driver}",
            concerned,
        )
    yield from _check_signatures(translations)


def _differing(
    code: UpgradeCode, message: str, concerned: Iterable[_Translation]
) -> Iterator[UpgradeFinding]:
    """Yield the effects on manifests, on pods that wait, and on pods that have their claims."""
    groups: dict[tuple[bool, bool], list[str]] = {}
    for translation in concerned:
        groups.setdefault((translation.is_pod, translation.waits), []).append(translation.object)
    for (is_pod, waits), names in sorted(groups.items()):
        if not is_pod:
            yield finding(
                Severity.ERROR,
                code,
                f"{message}; pods of these translated manifests would be rejected",
                "keep the legacy manifests, or translate them again with this version",
                names,
            )
        elif waits:
            yield finding(
                Severity.WARNING,
                code,
                f"{message}; these pods wait for their templates, and would get none",
                "upgrade when they have started, and the webhook before the controllers; else create "
                "them again",
                names,
            )
        else:
            yield finding(
                Severity.INFO,
                code,
                f"{message}; these pods have their claims and keep them",
                "",
                names,
            )


def _check_signatures(translations: Iterable[_Translation]) -> Iterator[UpgradeFinding]:
    unsigned = [
        translation.object
        for translation in translations
        if translation.waits and not translation.signature.startswith(f"{SIGNATURE_VERSION}.")
    ]
    if unsigned:
        yield finding(
            Severity.WARNING,
            UpgradeCode.NOT_SIGNED,
            "these pods wait for their templates without a signature of this version, and would get none",
            "create them again after the upgrade",
            unsigned,
        )


def _translations(objects: Iterable[SourceObject], namespace: str) -> Iterator[_Translation]:
    """Yield the records of live pods, and of the pod templates of workloads."""
    for source in objects:
        path = pod_path(source.api_version, source.kind)
        if path is None:
            continue
        _, pod = resolve_path(source.document, path)
        annotations = _mapping(_mapping(pod).get("metadata")).get("annotations")
        text = _mapping(annotations).get(REQUEST_ANNOTATION)
        is_pod = source.kind == "Pod"
        status = _mapping(source.document.get("status"))
        if not isinstance(text, str) or (is_pod and str(status.get("phase")) in FINISHED_PHASES):
            continue
        is_live = is_pod and bool(status)
        signature = _mapping(annotations).get(SIGNATURE_ANNOTATION)
        yield _Translation(
            object=reference(source, namespace),
            text=text,
            signature=signature if isinstance(signature, str) else "",
            is_pod=is_live,
            waits=is_live and _waits(_mapping(_mapping(pod).get("spec")), status),
        )


def _waits(spec: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    """Return True if a pod has claims of templates that were not created yet."""
    claim_names = {
        _mapping(entry).get("name") for entry in status.get("resourceClaimStatuses") or ()
    }
    return any(
        _mapping(claim).get("resourceClaimTemplateName")
        and _mapping(claim).get("name") not in claim_names
        for claim in spec.get("resourceClaims") or ()
    )


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
