"""Pod templates, and resources of containers, in objects of kinds that stay as they are.

Where a kind keeps its templates is not known, so the search is generic and bounded.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from findings.field_path import FieldPath
from findings.finding import Code, Finding, info
from findings.text import join_names, printable
from kube.api.core import Pod
from kube.api.meta import convert
from translation.model.device_families import has_device_words
from translation.model.intents import Vocabulary
from translation.reading.arbiter import VOCABULARIES
from translation.reading.legacy_pod import containers, device_keys
from translation.reading.untranslated_keys import check_untranslated_keys, is_probable_device_key

MAX_VALUES: Final = 20_000
"""Objects and lists that are searched in one document."""
MAX_TEMPLATES: Final = 8
MAX_KEYS: Final = 5
"""Keys that are named in one finding."""
MAX_TEXT: Final = 64 * 1024
"""Characters of a text in a ConfigMap that are searched."""
_SECTION: Final = re.compile(r"""([ ]*)["']?(?:limits|requests)["']?:(.{0,1000})""")
"""The line that begins limits or requests in YAML; its entries may follow in the same line."""
_FLOW_SECTION: Final = re.compile(r"""\b(?:limits|requests)["']?:[ ]{0,9}\{([^{}]{0,1000})""")
"""Limits or requests within a line, as in JSON."""
_ENTRY: Final = re.compile(r"""([ ]*)["']?([A-Za-z0-9._/-]{1,317})""")
_NAMES_IN_LINE: Final = re.compile(r"[a-z0-9.-]{1,253}/[A-Za-z0-9._-]{1,63}")
_CONTAINER_FIELDS: Final = ("initContainers", "containers")
MANIFEST_FIELDS: Final = ("podSpecPatch", "manifest")
"""Source: argoproj/argo-workflows, pkg/apis/workflow/v1alpha1, WorkflowSpec, Template and ResourceTemplate: texts that
are applied to a pod, or as an object."""
_SECTIONS: Final = ("limits", "requests")


def check_embedded_templates(
    document: Mapping[str, Any],
    vocabularies: Mapping[str, Vocabulary] = VOCABULARIES,
    extended_resources: Iterable[str] = (),
    kept_names: Collection[str] = (),
) -> tuple[Finding, ...]:
    """Return a finding for each pod template, or map of resources, with device keys in an object.

    Args:
        document: An object of a kind that stays as it is.
        vocabularies: Extended by the resource names in profiles.
        extended_resources: Resource names that a DeviceClass maps.
        kept_names: The vocabularies and resource names that stay with their device plugin.
    """
    findings: list[Finding] = []
    mapped_names = frozenset(extended_resources)
    for template in _templates(document):
        keys = {
            key
            for _, container in containers(template.pod)
            for key in (
                *device_keys(container, vocabularies),
                *filter(_names_device_without_domain, {**container.limits, **container.requests}),
            )
        }
        if keys:
            findings.append(_finding(template, keys))
        findings += (
            msgspec.structs.replace(finding, path=template.place(finding.path))
            for finding in check_untranslated_keys(
                template.pod, vocabularies, mapped_names, kept_names
            )
        )
    findings += _check_texts(document)
    return tuple(findings)


def _check_texts(document: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield a finding for each text with device keys, such as a template in YAML in a ConfigMap."""
    count = 0
    for path, text in _texts(document):
        keys = sorted(set(_keys_of_text(text)))
        if keys:
            count += 1
            yield info(
                Code.POD_TEMPLATE_NOT_READ,
                path,
                f"contains a text with device keys ({_first_keys(keys)}) and stays as it is; the pods "
                "that are made of it are translated when they are created",
            )
        if count == MAX_TEMPLATES:
            return


def _texts(document: Mapping[str, Any]) -> Iterator[tuple[FieldPath, str]]:
    """Yield the texts of a ConfigMap, and the manifests in texts of an Argo workflow, with their places."""
    data = document.get("data")
    if document.get("kind") == "ConfigMap" and isinstance(data, dict):
        for name, text in data.items():
            if isinstance(name, str) and isinstance(text, str):
                yield FieldPath.of("data").key(name), text
    if str(document.get("apiVersion")).startswith("argoproj.io/"):
        for path, value in _objects(document):
            for name in MANIFEST_FIELDS:
                text = value.get(name) if isinstance(value, dict) else None
                if isinstance(text, str):
                    yield path.child(name), text


def _keys_of_text(text: str) -> Iterator[str]:
    """Yield the device keys in the limits and requests of a text in YAML, possibly with placeholders."""
    indent = None
    for line in text[:MAX_TEXT].splitlines():
        start = _SECTION.match(line)
        if start is not None:
            indent = len(start[1])
            yield from filter(is_probable_device_key, _NAMES_IN_LINE.findall(start[2]))
            continue
        for amounts in _FLOW_SECTION.findall(line):
            yield from filter(is_probable_device_key, _NAMES_IN_LINE.findall(amounts))
        entry = _ENTRY.match(line)
        if entry is None:
            continue
        if indent is None or len(entry[1]) <= indent:
            indent = None
        elif is_probable_device_key(entry[2]):
            yield entry[2]


_RESOURCES: Final = FieldPath.of("spec", "containers", 0, "resources")
"""The place of resources alone in the pod that they are read as."""


class _Template(NamedTuple):
    """A pod template, or a container's resources, reduced to the fields that request devices.

    Attributes:
        is_name: The object has the name of a device in a field of its own, not in resources.
    """

    path: FieldPath
    pod: Pod
    is_whole: bool = True
    is_name: bool = False

    def place(self, path: FieldPath) -> FieldPath:
        """Return the path in the object of a path in the pod."""
        if self.is_name:
            return self.path
        if self.is_whole:
            return self.path.join(path)
        return self.path.join(path.relative_to(_RESOURCES) or FieldPath())


def _templates(document: Mapping[str, Any]) -> Iterator[_Template]:
    """Yield the pod templates of a document, in its order."""
    pending: list[tuple[FieldPath, Any]] = [(FieldPath(), document)]
    count = 0
    for _ in range(MAX_VALUES):
        if not pending or count == MAX_TEMPLATES:
            return
        path, value = pending.pop()
        pod = _pod_of(value)
        if pod is not None:
            count += 1
            yield _Template(FieldPath.of("spec") if path.is_root else path, pod)
            continue
        pod = _pod_of_resources(value)
        if pod is not None:
            count += 1
            yield _Template(path, pod, is_whole=False)
            continue
        pod = _pod_of_device(value)
        if pod is not None:
            count += 1
            yield _Template(path, pod, is_whole=False, is_name=True)
            continue
        pending += reversed(_children(path, value))


def _objects(document: Mapping[str, Any]) -> Iterator[tuple[FieldPath, Any]]:
    """Yield the objects and lists of a document with their places, in its order."""
    pending: list[tuple[FieldPath, Any]] = [(FieldPath(), document)]
    for _ in range(MAX_VALUES):
        if not pending:
            return
        path, value = pending.pop()
        yield path, value
        pending += reversed(_children(path, value))


def _children(path: FieldPath, value: Any) -> list[tuple[FieldPath, Any]]:
    """Return the objects and lists within one, with their places."""
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    return [
        (path.child(step), child)
        for step, child in entries
        if isinstance(child, dict | list) and isinstance(step, str | int)
    ]


def _pod_of(value: Any) -> Pod | None:
    """Return the pod of a template; None if the value is something else."""
    spec = value.get("spec") if isinstance(value, dict) else None
    if not isinstance(spec, dict) or not isinstance(spec.get("containers"), list):
        return None
    metadata = value.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    lists = {field: spec.get(field) for field in _CONTAINER_FIELDS}
    return _converted(
        {
            field: [_reduced_container(container) for container in containers]
            for field, containers in lists.items()
            if isinstance(containers, list)
        },
        annotations,
    )


def _pod_of_resources(value: Any) -> Pod | None:
    """Return a pod with resources as those of its container; None if the value is something else.

    Source: ai-dynamo/dynamo, deploy/cloud/operator/api/dynamo/common, Resources, of which `custom` has
    the names with a domain.
    """
    if not isinstance(value, dict):
        return None
    amounts = {section: value.get(section) for section in _SECTIONS}
    names = {
        section: [
            *_names(amount),
            *_names(amount.get("custom") if isinstance(amount, dict) else ()),
        ]
        for section, amount in amounts.items()
    }
    if not any(
        is_probable_device_key(name) or _names_device_without_domain(name)
        for section_names in names.values()
        for name in section_names
    ):
        return None
    return _converted({"containers": [_container_of(names)]})


def _pod_of_device(value: Any) -> Pod | None:
    """Return a pod with the device that a field names; None if the value is something else.

    Source: kubeflow/spark-operator, api/v1beta2, GPUSpec; kubevirt/kubevirt, api/core/v1, GPU and HostDevice.
    """
    if not isinstance(value, dict):
        return None
    name = value.get("name" if isinstance(value.get("quantity"), int) else "deviceName")
    if not isinstance(name, str) or not (
        is_probable_device_key(name) or ("deviceName" in value and "/" in name)
    ):
        return None
    return _converted({"containers": [_container_of({"limits": [name]})]})


def _names(amounts: object) -> Iterable[str]:
    """Return the names in amounts that may be placeholders."""
    if not isinstance(amounts, dict):
        return ()
    return [
        name
        for name, amount in amounts.items()
        if type(name) is str and not isinstance(amount, dict | list)
    ]


def _names_device_without_domain(name: str) -> bool:
    """Return True for a device name without a domain, such as `gpu`; its controller knows the domain."""
    return "/" not in name and has_device_words(f"/{name}")


def _reduced_container(container: Any) -> Mapping[str, Any]:
    resources = container.get("resources") if isinstance(container, dict) else None
    resources = resources if isinstance(resources, dict) else {}
    return _container_of({section: _names(resources.get(section)) for section in _SECTIONS})


def _container_of(names: Mapping[str, Iterable[str]]) -> Mapping[str, Any]:
    """Return a container with some resources, each with an amount of 1: theirs may be placeholders."""
    amounts = {section: dict.fromkeys(names_of, 1) for section, names_of in names.items()}
    return {"name": "", "resources": amounts}


def _converted(spec: Mapping[str, Any], annotations: object = None) -> Pod | None:
    try:
        return convert({"metadata": {"annotations": annotations or {}}, "spec": spec}, Pod)
    except msgspec.ValidationError:
        return None


def _finding(template: _Template, keys: Iterable[str]) -> Finding:
    key_names = _first_keys(sorted(keys))
    return info(
        Code.POD_TEMPLATE_NOT_READ,
        template.path,
        f"contains {'a pod template' if template.is_whole else 'resources'} with device keys "
        f"({key_names}) and stays as it is; its pods are translated when they are created",
    )


def _first_keys(keys: Sequence[str]) -> str:
    return printable(join_names(keys, MAX_KEYS))
