"""The templates that no live pod and no workload uses any more. Pure."""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from controllers.templates.actions import Key, TemplateState
from kube.api.meta import ApiStruct, ObjectMeta, decode


class UnusedTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """A managed template that no live pod uses.

    Attributes:
        since_s: The time since which it is unused, by a monotonic clock.
    """

    uid: str
    since_s: float


def unused_templates(
    templates: Mapping[Key, TemplateState],
    used: Collection[Key],
    before: Mapping[Key, UnusedTemplate],
    now_s: float,
) -> Mapping[Key, UnusedTemplate]:
    """Return the managed templates that no live pod uses.

    One that a finalizer keeps needs no second deletion, and users can write any number of finalizers.

    Args:
        used: Templates that live pods name.
        before: The result of the last call; a template that was created again starts over.
    """
    current: dict[Key, UnusedTemplate] = {}
    for key, template in templates.items():
        if template.is_managed and not template.is_terminating and key not in used:
            known_template = before.get(key)
            same = known_template is not None and known_template.uid == template.uid
            current[key] = (
                known_template
                if known_template and same
                else UnusedTemplate(uid=template.uid, since_s=now_s)
            )
    return current


class _PodSpec(ApiStruct, frozen=True, kw_only=True):
    resource_claims: tuple[Mapping[str, Any], ...] | None = None


class _PodTemplate(ApiStruct, frozen=True, kw_only=True):
    spec: _PodSpec = _PodSpec()


class _JobSpec(ApiStruct, frozen=True, kw_only=True):
    template: _PodTemplate = _PodTemplate()


class _JobTemplate(ApiStruct, frozen=True, kw_only=True):
    spec: _JobSpec = _JobSpec()


class _WorkloadSpec(ApiStruct, frozen=True, kw_only=True):
    template: _PodTemplate = _PodTemplate()
    job_template: _JobTemplate = _JobTemplate()


class _Workload(ApiStruct, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _WorkloadSpec = _WorkloadSpec()


def referenced_templates(raw: bytes) -> frozenset[Key]:
    """Return the templates that the pods of a workload of any kind refer to."""
    workload = decode(raw, _Workload)
    specs = (workload.spec.template.spec, workload.spec.job_template.spec.template.spec)
    return frozenset(
        (workload.metadata.namespace, entry["resourceClaimTemplateName"])
        for spec in specs
        for entry in spec.resource_claims or ()
        if entry.get("resourceClaimTemplateName")
    )
