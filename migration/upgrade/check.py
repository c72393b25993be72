"""The checks before an upgrade of Kubernetes or of Drawbridge. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from allocator.model.gate_metrics import parse_gates
from answers.model.kubernetes_version import Version, format_version, parse_version
from findings.finding import Severity
from findings.text import join_names
from kube.manifests.source import SourceObject
from migration.upgrade.kubernetes import (
    check_kubernetes,
    gates_after,
    parse_requested_apis,
)
from migration.upgrade.model import (
    UpgradeAnswer,
    UpgradeCode,
    UpgradeFacts,
    UpgradeFinding,
    finding,
)
from migration.upgrade.product import check_product
from translation.profiles.profile import Profile

_ORDER: Final = tuple(Severity)


class UpgradeQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster before an upgrade.

    Attributes:
        objects: The cluster's objects, and manifests.
        facts: The facts that only a running cluster has.
        profiles: Driver to profile, of this version of Drawbridge.
        kubernetes: Version of the API server; empty where it is not known.
        target: Version of Kubernetes after the upgrade; None if Kubernetes stays as it is.
        client_version: The version of this Drawbridge.
        namespace: The namespace for objects that name none.
    """

    objects: Sequence[SourceObject]
    facts: UpgradeFacts
    profiles: Mapping[str, Profile]
    kubernetes: str
    target: Version | None
    client_version: str
    namespace: str


def check_upgrade(question: UpgradeQuestion) -> UpgradeAnswer:
    """Return the findings about the upgrade, errors first."""
    current = parse_version(question.kubernetes)
    target = question.target or current
    findings = sorted(
        _findings(question, current, target), key=lambda entry: _ORDER.index(entry.severity)
    )
    return UpgradeAnswer(
        kubernetes_version=question.kubernetes,
        target_version=format_version(target) if target is not None else "",
        client_version=question.client_version,
        findings=tuple(findings),
    )


def _findings(
    question: UpgradeQuestion, current: Version | None, target: Version | None
) -> Iterator[UpgradeFinding]:
    metrics = question.facts.metrics
    if question.facts.settings_problem:
        yield finding(
            Severity.ERROR,
            UpgradeCode.SETTINGS_INVALID,
            f"{question.facts.settings_problem}; processes of this version would not start",
            "correct ConfigMap drawbridge-settings first",
        )
    if overlays := question.facts.opt_out_overlays:
        marked = join_names([f"manifests/overlays/{name}" for name in overlays])
        yield finding(
            Severity.WARNING,
            UpgradeCode.OVERLAY_MODE_DIFFERS,
            f"the webhook configurations are OptOut, with marks of {marked}; in this version these folders are "
            "OptIn and replace ConfigMap drawbridge-settings, whatever mode it names: pods of namespaces "
            "without the label would be admitted as they are written",
            "to stay OptOut, name ../../base in the kustomization.yaml of such a folder instead of ../opt-in "
            "before you apply it; if what you apply stands on manifests/base already, nothing is to do",
        )
    if target is not None:
        yield from check_kubernetes(
            question.objects,
            target,
            gates_after(parse_gates(metrics), current, target),
            parse_requested_apis(metrics),
            question.namespace,
        )
    yield from check_product(
        question.objects, question.profiles, question.facts.kept_versions, question.namespace
    )
