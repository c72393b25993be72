"""Findings about device keys that no vocabulary translates, so that none is ignored silently."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Final

from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, info, warning
from findings.text import join_names, printable, quote_text
from kube.api.core import Container, Pod
from kube.api.extended_resources import allows_overcommit
from kube.names import REQUEST_ANNOTATION
from translation.model.device_families import (
    BOOKKEEPING,
    FAMILIES,
    UNKNOWN,
    DeviceFamily,
    has_device_words,
)
from translation.model.intents import Vocabulary
from translation.model.keys import ANY, Place, names
from translation.reading import arbiter
from translation.reading.arbiter import VOCABULARIES
from translation.reading.kept_keys import is_kept
from translation.reading.legacy_pod import check_amounts, containers, has_device_keys

MAX_KEYS: Final = 5
"""Keys that are named in one finding."""
MAX_SIMILAR_LENGTH: Final = 63
MIN_SIMILAR_LENGTH: Final = 5
"""The shortest name that a similar one is compared with; of a shorter one only the plural is a misspelling."""
MAX_COMPARED: Final = 16
"""Keys of a pod that are compared with the names that vocabularies read."""
SIMILARITY: Final = 0.8
"""Part of the letters of two names that are equal where one is probably a misspelling."""
_DIGIT: Final = re.compile(r"[0-9]")
_SEPARATORS: Final = re.compile(r"[-_.]")
_BESIDE_TRANSLATED: Final = (
    "remove it once nothing else reads it: the pod has keys that are translated"
)
_SERVED_BESIDE: Final = "keep it while a device plugin serves it: the pod gets these devices beside those of the keys that are translated"
_READ_ANNOTATIONS: Final = frozenset(
    name
    for vocabulary in VOCABULARIES.values()
    for name in names(vocabulary.table, Place.ANNOTATION)
)
_BOOKKEEPING: Final = re.compile(
    "|".join(re.escape(pattern).replace(re.escape(ANY), ".*") for pattern in BOOKKEEPING), re.DOTALL
)
_ANNOTATIONS_PATH: Final = FieldPath.of("metadata", "annotations")
_POD_RESOURCES: Final = FieldPath.of("spec", "resources")
_STANDARD: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
_STANDARD_PREFIX: Final = "hugepages-"
"""The resources of Kubernetes itself, which have no domain."""


def check_untranslated_keys(
    pod: Pod,
    vocabularies: Mapping[str, Vocabulary] = VOCABULARIES,
    extended_resources: Collection[str] = (),
    kept_names: Collection[str] = (),
) -> tuple[Finding, ...]:
    """Return a finding for each device family with keys in a pod that are not translated.

    Args:
        vocabularies: Extended by the resource names in profiles.
        extended_resources: Resource names that a DeviceClass maps; Kubernetes allocates these.
        kept_names: The vocabularies and resource names that stay with their device plugin.
    """
    resources = _unhandled_resources(pod, vocabularies, extended_resources)
    if not resources and not pod.annotations:
        return ()  # As of most pods: only resource names and annotations are keys.
    misspelt_domains = dict(_check_domains(resources, vocabularies, kept_names))
    findings = [*_check_effect(pod, vocabularies), *misspelt_domains.values()]
    families = _keys_by_family(pod, resources, kept_names)
    if not families:
        return tuple(findings)
    translated_families = _translated_families(pod, vocabularies)
    uncompared = MAX_COMPARED
    for family, paths in families.items():
        other_paths = {key: path for key, path in paths.items() if key not in misspelt_domains}
        for key, path in tuple(other_paths.items()):
            if not uncompared or len(findings) >= MAX_KEYS:
                break
            uncompared -= 1
            similar = _similar_name(path, key, vocabularies)
            if similar is not None:
                findings.append(_misspelt(family, key, path, similar))
                del other_paths[key]
        if other_paths:
            findings.append(
                _finding(family, other_paths, has_translated=family in translated_families)
            )
    return tuple(findings)


def _check_effect(pod: Pod, vocabularies: Mapping[str, Vocabulary]) -> Iterator[Finding]:
    """Yield a warning about annotations without effect: for other schedulers, or without their label."""
    annotations = pod.annotations
    if annotations.keys().isdisjoint(arbiter.REQUESTING_ANNOTATIONS):
        return
    if REQUEST_ANNOTATION in annotations:
        return  # A translation has replaced the scheduler.
    for vocabulary in vocabularies.values():
        requesting_names = sorted(annotations.keys() & set(vocabulary.requesting))
        if not requesting_names or has_device_keys(pod, vocabularies):
            continue
        if vocabulary.requesting_label is not None:
            label, value = vocabulary.requesting_label
            condition, advice = f'with the label {label}: "{value}"', "write that label"
            has_effect = pod.labels.get(label) == value
        else:
            condition = f"of {' or '.join(vocabulary.schedulers)}"
            advice = "write that schedulerName"
            has_effect = (
                not vocabulary.schedulers or pod.spec.scheduler_name in vocabulary.schedulers
            )
        if not has_effect:
            yield warning(
                Code.UNTRANSLATED_DEVICE_KEY,
                _ANNOTATIONS_PATH.key(requesting_names[0]),
                f"{requesting_names[0]} requests devices only in pods {condition}, so the pod gets none, "
                "unless a controller sets it",
                f"{advice}, or device keys such as nvidia.com/gpu and nvidia.com/gpumem",
            )


def _unhandled_resources(
    pod: Pod, vocabularies: Mapping[str, Vocabulary], extended_resources: Collection[str]
) -> Mapping[str, FieldPath]:
    """Return each resource name with a domain that no vocabulary and no DeviceClass has, with its first path."""
    keys = {
        key
        for container in (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))
        for key in (*container.limits, *container.requests)
        if "/" in key and key not in extended_resources
    }
    unhandled_keys = arbiter.unhandled_keys(keys, vocabularies) if keys else ()
    if not unhandled_keys:
        return {}  # As of most pods, for which no path has to be built.
    resources: dict[str, FieldPath] = {}
    for path, container in containers(pod):
        for section, amounts in (("limits", container.limits), ("requests", container.requests)):
            for key in amounts:
                if key in unhandled_keys and key not in resources:
                    resources[key] = path.child("resources", section).key(key)
    return resources


def _check_domains(
    resources: Mapping[str, FieldPath],
    vocabularies: Mapping[str, Vocabulary],
    kept_names: Collection[str],
) -> Iterator[tuple[str, Finding]]:
    """Yield each key that is a key of a vocabulary, but for letters of its domain, with a warning.

    Args:
        resources: Resource name of no vocabulary to its path.
        kept_names: Resource names that stay as they are.
    """
    keys = [key for key in resources if not allows_overcommit(key) and key not in kept_names]
    for key in keys[:MAX_COMPARED]:
        if _RESOURCES.family(key) is not None:
            continue
        similar = _name_of_similar_domain(key, vocabularies)
        if similar is not None:
            message = f"{printable(key)} is no key that is translated, so the pod waits for a node that offers it"
            finding = warning(
                Code.UNTRANSLATED_DEVICE_KEY, resources[key], message, f"did you mean {similar}?"
            )
            yield key, finding.renamed_to(similar)


def _name_of_similar_domain(key: str, vocabularies: Mapping[str, Vocabulary]) -> str | None:
    """Return the name that differs in letters of its domain only; None without one."""
    domain, _, own = key.partition("/")
    if not own or len(domain) > MAX_SIMILAR_LENGTH:
        return None
    domains = {
        other_domain: name
        for vocabulary in vocabularies.values()
        for name in sorted(vocabulary.keys)
        for other_domain, _, other in (name.partition("/"),)
        if other == own
    }
    nearest = get_close_matches(domain, domains, n=1, cutoff=SIMILARITY)
    return domains[nearest[0]] if nearest else None


def _similar_name(path: FieldPath, key: str, vocabularies: Mapping[str, Vocabulary]) -> str | None:
    """Return the name that a vocabulary reads and a key probably stands for; None without one.

    A name with digits names a model, so a similar one is another model.
    """
    domain, _, own = key.partition("/")
    if len(own) > MAX_SIMILAR_LENGTH or _DIGIT.search(own):
        return None
    is_annotation = path.relative_to(_ANNOTATIONS_PATH) is not None
    read_names = (
        _READ_ANNOTATIONS
        if is_annotation
        else {name for vocabulary in vocabularies.values() for name in vocabulary.keys}
    )
    letters = _letters(own)
    candidates = {
        _letters(other): name
        for name in sorted(read_names)
        for other_domain, _, other in (name.partition("/"),)
        if other_domain == domain
        # The first letter is rarely mistyped, and tells names of other systems apart.
        and other[:1] == letters[:1]
        and (len(other) >= MIN_SIMILAR_LENGTH or letters in {other, f"{other}s"})
    }
    nearest = get_close_matches(letters, candidates, n=1, cutoff=SIMILARITY)
    return candidates[nearest[0]] if nearest else None


def _letters(name: str) -> str:
    return _SEPARATORS.sub("", name).lower()


def _misspelt(family: DeviceFamily, key: str, path: FieldPath, similar: str) -> Finding:
    """Return the warning about a key that is probably misspelt."""
    return warning(
        Code.UNTRANSLATED_DEVICE_KEY,
        path,
        f"{printable(key)} is no key of {family.owner} that is translated, so the pod waits for a node that offers it",
        f"did you mean {similar}?",
    ).renamed_to(similar)


def _translated_families(
    pod: Pod, vocabularies: Mapping[str, Vocabulary]
) -> frozenset[DeviceFamily | None]:
    """Return the families with keys of a pod that are translated."""
    resources = (
        key
        for _, container in containers(pod)
        for key in (*container.limits, *container.requests)
        if arbiter.is_handled(key, vocabularies)
    )
    ignored_names = {
        name
        for vocabulary in vocabularies.values()
        if (label := vocabulary.requesting_label) is not None
        and pod.labels.get(label[0]) != label[1]
        for name in names(vocabulary.table, Place.ANNOTATION)
    }
    annotations = (
        key for key in pod.annotations if key in _READ_ANNOTATIONS and key not in ignored_names
    )
    return frozenset(
        (*map(_family_of_resource, resources), *map(_family_of_annotation, annotations))
    )


def find_untranslated_keys(
    pod: Pod,
    vocabularies: Mapping[str, Vocabulary] = VOCABULARIES,
    extended_resources: Collection[str] = (),
    kept_names: Collection[str] = (),
) -> Mapping[DeviceFamily, Mapping[str, FieldPath]]:
    """Return the keys of each device family that are not translated, with their first paths.

    Keys of no family that name devices are in the family `UNKNOWN`.

    Args:
        vocabularies: The vocabularies that `check_untranslated_keys` takes.
        extended_resources: The extended resources that `check_untranslated_keys` takes.
        kept_names: The kept names that `check_untranslated_keys` takes.
    """
    return _keys_by_family(
        pod, _unhandled_resources(pod, vocabularies, extended_resources), kept_names
    )


def _keys_by_family(
    pod: Pod, resources: Mapping[str, FieldPath], kept_names: Collection[str]
) -> Mapping[DeviceFamily, Mapping[str, FieldPath]]:
    """Return family to the keys that no vocabulary reads, with their paths.

    Args:
        resources: Resource name of no vocabulary to its path.
    """
    paths: dict[DeviceFamily, dict[str, FieldPath]] = {}
    for key, path, family in _keys_with_family(pod, resources):
        if not is_kept(key, kept_names):
            paths.setdefault(family, {}).setdefault(key, path)
    return paths


def check_untranslated_requests(
    pod: Pod, vocabularies: Mapping[str, Vocabulary] = VOCABULARIES
) -> Iterator[Finding]:
    """Yield an error for each resource that no translation removes, and the API server rejects.

    The messages are those of the API server.

    Args:
        vocabularies: Extended by the resource names in profiles; their keys are checked before they
            are translated.
    """
    for path, container in containers(pod):
        faulty_requests = {
            key: amount
            for key, amount in container.requests.items()
            if not allows_overcommit(key) and not arbiter.is_handled(key, vocabularies)
        }
        yield from check_amounts(path, faulty_requests, container.limits)
        yield from _check_names(path, container)
    yield from _check_pod_resources(pod)


def _check_names(path: FieldPath, container: Container) -> Iterator[Finding]:
    """Yield an error for each name without a domain that is not of Kubernetes.

    Source: k8s.io/kubernetes v1.37.1, pkg/apis/core/validation, ValidateContainerResourceName.
    """
    for section, amounts in (("limits", container.limits), ("requests", container.requests)):
        for key in amounts:
            if "/" not in key and not key.startswith(_STANDARD_PREFIX) and key not in _STANDARD:
                yield error(
                    Code.INVALID_OBJECT,
                    path.child("resources", section).key(key),
                    f"Invalid value: {quote_text(key)}: must be a standard resource type or fully qualified",
                    "write the whole name of the resource, such as nvidia.com/gpu",
                )


def _check_pod_resources(pod: Pod) -> Iterator[Finding]:
    """Yield an error for each device key in the resources of the whole pod.

    Source: k8s.io/kubernetes v1.37.1, pkg/apis/core/validation, validatePodResourceName.
    """
    resources = pod.spec.resources
    if resources is None:
        return
    for section, amounts in (("limits", resources.limits), ("requests", resources.requests)):
        for key in amounts or ():
            if "/" in key:
                yield error(
                    Code.INVALID_OBJECT,
                    _POD_RESOURCES.child(section).key(key),
                    f'Unsupported value: {quote_text(key)}: supported values: "cpu", "hugepages-", "memory"',
                    "request it in the resources of the container that uses it",
                )


def is_device_key(resource: str) -> bool:
    """Return True if a resource name belongs to a vocabulary or a device family.

    >>> is_device_key("nvidia.com/gpu"), is_device_key("amd.com/gpu"), is_device_key("cpu")
    (True, True, False)
    """
    return arbiter.is_handled(resource) or _RESOURCES.family(resource) is not None


def is_probable_device_key(resource: str) -> bool:
    """Return True for a device key, and for a resource name of another domain with words of devices.

    >>> is_probable_device_key("nvidia.com/gpu"), is_probable_device_key("acme.example/gpu")
    (True, True)
    """
    return is_device_key(resource) or has_device_words(resource)


def _keys_with_family(
    pod: Pod, resources: Mapping[str, FieldPath]
) -> Iterator[tuple[str, FieldPath, DeviceFamily]]:
    """Yield name, path and family of each key that no vocabulary reads."""
    companions = _companions(pod) if resources else frozenset()
    for key, path in resources.items():
        family = _family_of_resource(key)
        if family is not None and key not in companions:
            yield key, path, family
    for key in pod.annotations:
        family = _family_of_annotation(key)
        if family is not None and key not in _READ_ANNOTATIONS:
            yield key, _ANNOTATIONS_PATH.key(key), family


def _companions(pod: Pod) -> frozenset[str]:
    """Return the foreign keys that a vocabulary reads, and rejects, beside its own."""
    return arbiter.companions(
        {
            key
            for _, container in containers(pod)
            for key in (*container.limits, *container.requests)
        }
    )


def _family_of_resource(name: str) -> DeviceFamily | None:
    return _RESOURCES.family(name) or (UNKNOWN if has_device_words(name) else None)


def _family_of_annotation(name: str) -> DeviceFamily | None:
    """Return the family that an annotation requests devices of; None for a record of a scheduler."""
    family = _ANNOTATIONS.family(name)
    return None if family is not None and _BOOKKEEPING.fullmatch(name) else family


class _Index:
    """Device families by the patterns of their keys, each of one whole domain."""

    def __init__(self, patterns: Iterable[tuple[str, DeviceFamily]]) -> None:
        self._exact: dict[str, DeviceFamily] = {}
        self._by_domain: dict[str, list[tuple[str, DeviceFamily]]] = {}
        for pattern, family in patterns:
            if pattern.endswith(ANY):
                domain, _, _ = pattern.partition("/")
                prefixes = self._by_domain.setdefault(domain, [])
                prefixes.append((pattern.removesuffix(ANY), family))
            else:
                self._exact.setdefault(pattern, family)

    def family(self, key: str) -> DeviceFamily | None:
        """Return the family of a key: by its whole name, else by the first prefix that matches."""
        family = self._exact.get(key)
        if family is not None:
            return family
        domain, _, _ = key.partition("/")
        for prefix, prefix_family in self._by_domain.get(domain, ()):
            if key.startswith(prefix):
                return prefix_family
        return None


_RESOURCES: Final = _Index((name, family) for family in FAMILIES for name in family.resources)
_ANNOTATIONS: Final = _Index((name, family) for family in FAMILIES for name in family.annotations)


def _finding(
    family: DeviceFamily, paths: Mapping[str, FieldPath], *, has_translated: bool
) -> Finding:
    """Return the finding about a family; a pod with translated keys of it needs no others."""
    keys = sorted(paths)
    key_names = printable(join_names(keys, MAX_KEYS))
    is_one = len(keys) == 1
    message = (
        f"{key_names} {'is a key' if is_one else 'are keys'} of {family.owner} and "
        f"{'is' if is_one else 'are'} not translated"
    )
    advice = family.advice
    if has_translated:
        are_annotations = all(
            path.relative_to(_ANNOTATIONS_PATH) is not None for path in paths.values()
        )
        advice = _BESIDE_TRANSLATED if are_annotations else _SERVED_BESIDE
    return info(Code.UNTRANSLATED_DEVICE_KEY, paths[keys[0]], message, advice)
