"""The places of a plan's patches in a repository: the folder of a step, or a HelmRelease. Pure.

Flux renders the objects of a HelmRelease from a chart. They are in no repository, so a patch of one changes nothing there;
its place is in `spec.postRenderers` of the HelmRelease, which change what was rendered.

Sources: fluxcd/helm-controller, labels of origin, which every rendered object gets, and HelmRelease `spec.postRenderers`.
"""

from collections.abc import Iterable
from typing import Final

from kube.manifests.source import SourceObject
from kube.names import TRANSLATE_SELECTED
from migration.cluster.evidence import text_map
from migration.plan.model.plan import Plan, Wave, is_name, is_namespace

SCRIPTS: Final = "scripts"
KUSTOMIZE: Final = "kustomize"
_FLUX: Final = "Flux"
_RELEASE: Final = ("helm.toolkit.fluxcd.io/namespace", "helm.toolkit.fluxcd.io/name")
"""The labels of a rendered object, with the namespace and the name of its HelmRelease."""
_APPLIED: Final = "kustomize.toolkit.fluxcd.io/name"
"""The label of an object that Flux applies as it is in a repository."""


def read_helm_releases(objects: Iterable[SourceObject], managed: dict[str, str]) -> dict[str, str]:
    """Return each managed object that Flux renders from a HelmRelease to that, as `namespace/name`.

    Args:
        objects: The cluster's objects.
        managed: Object, as `Kind/namespace/name`, to its manager.
    """
    releases = {}
    for source in objects:
        reference = f"{source.kind}/{source.namespace or ''}/{source.name}"
        if managed.get(reference) != _FLUX:
            continue
        labels = text_map(source.document, "metadata", "labels")
        namespace, name = (labels.get(key, "") for key in _RELEASE)
        if _APPLIED not in labels and is_namespace(namespace) and is_name(name):
            releases[reference] = f"{namespace}/{name}"
    return dict(sorted(releases.items()))


def patch_file(kind: str, namespace: str, name: str) -> str:
    """Return the name of the file with the patch of an object for a repository."""
    place = f"{namespace}." if namespace else ""
    return f"{kind.lower()}.{place}{name}.yaml"


def release_file(release: str) -> str:
    """Return the name of the file with the patches of a HelmRelease, given as `namespace/name`."""
    return f"helmrelease.{release.replace('/', '.')}.yaml"


def wave_step(number: int) -> str:
    """Return the folder below `kustomize` with the patches of a wave's namespaces."""
    return f"wave-{number}"


def patched_namespaces(wave: Wave) -> dict[str, str]:
    """Return the namespaces that a wave patches, with the value of their label; those that have it already need no patch."""
    labels = dict.fromkeys(wave.namespaces, "true")
    labels |= {entry.namespace: TRANSLATE_SELECTED for entry in wave.partial_namespaces}
    return {name: value for name, value in labels.items() if wave.former_labels.get(name) != value}


def template_step(number: int) -> str:
    """Return the folder below `kustomize` with the patches of a wave's pod templates.

    Their commit begins rollouts, so it comes after the namespaces have their labels and new pods get claims.
    """
    return f"wave-{number}-templates"


def patch_place(plan: Plan, step: str, reference: str) -> str:
    """Return the place of an object's patch below a plan's folder: that of its step, or the file for its HelmRelease.

    Args:
        plan: The plan.
        step: The folder below `kustomize`.
        reference: The object, as `Kind/namespace/name`.
    """
    release = plan.helm_releases.get(reference)
    return f"{KUSTOMIZE}/{step}" + (f"/{release_file(release)}" if release else "")


def commit_text(plan: Plan, step: str, reference: str) -> str:
    """Return the order to put an object's patch into a repository."""
    place, release = patch_place(plan, step, reference), plan.helm_releases.get(reference)
    if release:
        return f"add the entries of {place} of the plan to spec.postRenderers of HelmRelease {release} in your repository"
    return f"commit {place} of the plan to your repository"
