"""The changes of a plan as patches for a repository, one Component of kustomize for each step. Pure.

Patches of what Flux renders from a HelmRelease are entries for the post-renderers of that.

Source: kubernetes-sigs/kustomize, KEP 1802 (components); a patch whose target a kustomization does not
have changes nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from kube.manifests.dump import dump_yaml
from kube.names import TRANSLATE_LABEL
from migration.plan.facts.environment import chart_names, in_repository
from migration.plan.facts.repository_patches import (
    KUSTOMIZE,
    patch_file,
    patched_namespaces,
    release_file,
    template_step,
    wave_step,
)
from migration.plan.model.plan import Plan, Wave, is_name


class Patch(msgspec.Struct, frozen=True, kw_only=True):
    """A strategic merge patch of one object."""

    api_version: str
    kind: str
    name: str
    namespace: str
    change: Mapping[str, Any]

    @property
    def reference(self) -> str:
        """The object, as `Kind/namespace/name`."""
        return f"{self.kind}/{self.namespace}/{self.name}"

    @property
    def file(self) -> str:
        """The name of its file."""
        return patch_file(self.kind, self.namespace, self.name)

    def target(self) -> dict[str, str]:
        """Return the selector of the object; without it kustomize refuses a patch of a missing one."""
        place = {"namespace": self.namespace} if self.namespace else {}
        # kustomize reads a name as a regular expression between ^ and $.
        return {"kind": self.kind, "name": self.name.replace(".", r"\."), **place}

    def document(self) -> dict[str, Any]:
        """Return the patch as an object."""
        place = {"namespace": self.namespace} if self.namespace else {}
        change = dict(self.change)
        metadata = {"name": self.name, **place, **change.pop("metadata", {})}
        return {"apiVersion": self.api_version, "kind": self.kind, "metadata": metadata, **change}


def kustomize_files(plan: Plan, quotas: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return path below the plan's folder to text; nothing for a plan that is not complete.

    Args:
        plan: The plan.
        quotas: File name to converted quota.
    """
    if not plan.complete:
        return {}
    files: dict[str, str] = {}
    for step, patches in (
        ("prepare", _prepared(plan, quotas)),
        *((wave_step(wave.wave), _of_namespaces(wave)) for wave in plan.waves),
        *((template_step(wave.wave), _of_templates(wave)) for wave in plan.waves),
    ):
        by_release: dict[str, list[Patch]] = {}
        for patch in patches:
            if in_repository(plan, patch.kind, patch.namespace, patch.name):
                release = plan.helm_releases.get(patch.reference, "")
                by_release.setdefault(release, []).append(patch)
        files |= _component(f"{KUSTOMIZE}/{step}", by_release.pop("", ()))
        for release, rendered in by_release.items():
            file = f"{KUSTOMIZE}/{step}/{release_file(release)}"
            files[file] = _post_renderers(release, rendered)
    return files


def _post_renderers(release: str, patches: Iterable[Patch]) -> str:
    """Return the entries for the post-renderers of a HelmRelease.

    It is no object: one with these alone would take the others of the HelmRelease away. A target has no namespace,
    since charts may render objects without theirs.
    """
    entries = [
        {
            "target": {"kind": patch.kind, "name": patch.target()["name"]},
            "patch": dump_yaml([patch.document()]),
        }
        for patch in patches
    ]
    document = dump_yaml([{"postRenderers": [{"kustomize": {"patches": entries}}]}])
    return f"# For spec.postRenderers of HelmRelease {release}, beside its other entries; nothing to apply by itself.\n{document}"


def _component(folder: str, patches: Sequence[Patch]) -> dict[str, str]:
    documents = {patch.file: patch.document() for patch in patches}
    targets = {patch.file: patch.target() for patch in patches}
    component = {
        "apiVersion": "kustomize.config.k8s.io/v1alpha1",
        "kind": "Component",
        "patches": [{"path": file, "target": targets[file]} for file in documents],
    }
    if not documents:
        return {}
    return {
        f"{folder}/kustomization.yaml": dump_yaml([component]),
        **{f"{folder}/{file}": dump_yaml([document]) for file, document in documents.items()},
    }


def _prepared(plan: Plan, quotas: Mapping[str, Mapping[str, Any]]) -> Iterator[Patch]:
    # Quotas count claims beside device keys, so they come before any namespace has a label.
    for namespace, files in plan.quotas.items():
        for file in files:
            document = quotas[file]
            yield Patch(
                api_version="v1",
                kind="ResourceQuota",
                name=document["metadata"]["name"],
                namespace=namespace,
                change={"spec": {"hard": document["spec"]["hard"]}},
            )
    names = (*(mapping.device_class for mapping in plan.wide_mappings), *chart_names(plan))
    unmapped: dict[str, None] = dict.fromkeys(names)
    for name, resource in (
        *unmapped.items(),
        *((name, resource) for resource, name in plan.mapped_classes.items()),
    ):
        if not is_name(name):
            continue  # A file has no such name.
        yield Patch(
            api_version="resource.k8s.io/v1",
            kind="DeviceClass",
            name=name,
            namespace="",
            change={"spec": {"extendedResourceName": resource}},
        )
    for plugin in plan.plugins:
        required = {"nodeSelectorTerms": [dict(term) for term in plugin.node_selector_terms]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        yield Patch(
            api_version="apps/v1",
            kind="DaemonSet",
            name=plugin.name,
            namespace=plugin.namespace,
            change={"spec": {"template": {"spec": {"affinity": affinity}}}},
        )


def _of_namespaces(wave: Wave) -> Iterator[Patch]:
    for namespace, value in patched_namespaces(wave).items():
        yield Patch(
            api_version="v1",
            kind="Namespace",
            name=namespace,
            namespace="",
            change={"metadata": {"labels": {TRANSLATE_LABEL: value}}},
        )


def _of_templates(wave: Wave) -> Iterator[Patch]:
    for workload in wave.workloads:
        if workload.labelled:
            kind, namespace, name = workload.object.split("/", 2)
            metadata = {"labels": {TRANSLATE_LABEL: "true"}}
            yield Patch(
                api_version="apps/v1",
                kind=kind,
                name=name,
                namespace=namespace,
                change={"spec": {"template": {"metadata": metadata}}},
            )
