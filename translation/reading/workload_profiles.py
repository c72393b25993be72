"""Pods of tensor-fusion that name a WorkloadProfile: its fields as the annotations that they stand for.

A translation depends on annotations alone, so the record of such a pod has those of its profile, and
an edit of the profile changes no pod that is translated already. What the pod says itself precedes.

Source: NexusGPU/tensor-fusion, internal/webhook/v1/tf_parser.go, ParseTensorFusionInfo: the pool, the
isolation, the indices and the place of the GPUs are those of the annotations, whatever a profile says.
"""

from collections.abc import Callable, Iterator, Mapping

import msgspec

from findings.finding import Code, Finding, warning
from findings.text import printable
from kube.api.tensor_fusion import KIND, WorkloadProfile
from kube.quantity import Quantity
from translation.model.intents import LegacyPod, annotation_path
from translation.vocabularies import tensorfusion
from translation.vocabularies.tensorfusion import PROFILE


class ProfileSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a WorkloadProfile that translations read.

    Attributes:
        annotations: The annotations that the profile's fields stand for.
        unread: Fields that have no annotation.
    """

    annotations: Mapping[str, str]
    unread: tuple[str, ...] = ()


def summarize_profile(profile: WorkloadProfile) -> ProfileSummary:
    """Return the annotations that the fields of a profile stand for."""
    spec = profile.spec
    requests, limits = spec.resources.requests, spec.resources.limits
    texts = {
        tensorfusion.MEMORY[0]: _text(requests.vram),
        tensorfusion.MEMORY[1]: _text(limits.vram),
        tensorfusion.TFLOPS[0]: _text(requests.tflops),
        tensorfusion.TFLOPS[1]: _text(limits.tflops),
        tensorfusion.PERCENT[0]: _text(requests.compute),
        tensorfusion.PERCENT[1]: _text(limits.compute),
        tensorfusion.COUNT: str(spec.gpu_count or 1),
        tensorfusion.MODEL: spec.gpu_model,
        tensorfusion.VENDOR: spec.vendor,
        tensorfusion.QOS: spec.qos,
        tensorfusion.AUTOSCALE: "true" if spec.auto_scaling_config else "",
    }
    return ProfileSummary(
        annotations={name: text for name, text in texts.items() if text},
        unread=("nodeAffinity",) if spec.node_affinity else (),
    )


def _text(amount: Quantity | None) -> str:
    # An amount of zero counts as absent.
    return str(amount) if amount else ""


class ExpandedPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod with the annotations of its profile.

    Attributes:
        added: The annotations that the pod itself does not have.
        findings: The findings about fields of the profile that are not read.
    """

    pod: LegacyPod
    profile: str = ""
    added: frozenset[str] = frozenset()
    findings: tuple[Finding, ...] = ()

    def locate(self, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
        """Return findings about added annotations as findings about the profile."""
        paths = {annotation_path(name): name for name in self.added}
        return (*self.findings, *(self._located(finding, paths.get) for finding in findings))

    def _located(self, finding: Finding, name_at: Callable[..., str | None]) -> Finding:
        name = name_at(finding.path)
        if name is None:
            return finding
        detail = f"{name} of {KIND} {printable(self.profile)}: {finding.detail}"
        path = annotation_path(PROFILE)
        return msgspec.structs.replace(finding.without_edits(), path=path, detail=detail)


def expand_profile(
    pod: LegacyPod, namespace: str, profiles: Mapping[tuple[str, str], ProfileSummary]
) -> ExpandedPod:
    """Return the pod with the annotations of the profile that it names, if that is known.

    Args:
        profiles: The profiles by namespace and name.
    """
    name = pod.annotations.get(PROFILE)
    summary = profiles.get((namespace, name)) if name is not None else None
    if name is None or summary is None or not tensorfusion.VOCABULARY.is_requested(pod):
        return ExpandedPod(pod=pod)
    own = {key: text for key, text in pod.annotations.items() if key != PROFILE}
    return ExpandedPod(
        pod=msgspec.structs.replace(
            pod, annotations=dict(sorted({**summary.annotations, **own}.items()))
        ),
        profile=name,
        added=frozenset(summary.annotations.keys() - own.keys()),
        findings=tuple(_check_unread(name, summary)),
    )


def _check_unread(name: str, summary: ProfileSummary) -> Iterator[Finding]:
    for field in summary.unread:
        yield warning(
            Code.POLICY_DROPPED,
            annotation_path(PROFILE),
            f"{field} of {KIND} {printable(name)} is dropped: tensor-fusion's scheduler read it",
            "write the affinity in the pod",
        )
