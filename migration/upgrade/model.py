"""The values of an upgrade check, as scripts see them."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from findings.finding import Severity
from translation.profiles.profile import Profile

MAX_OBJECTS: Final = 20
"""Objects that a finding names; `count` is the number of all."""


class UpgradeCode(StrEnum):
    """The cause of a finding; the text under each code describes it."""

    KUBERNETES_TOO_OLD = "kubernetesTooOld"
    """The version serves no ResourceClaims of `resource.k8s.io/v1`."""
    KUBERNETES_NOT_TESTED = "kubernetesNotTested"
    """This version of Drawbridge is not tested with the version of Kubernetes."""
    COMPONENT_NEEDS_KUBERNETES = "componentNeedsKubernetes"
    """A component that is in use does not run with the version of Kubernetes."""
    FEATURE_GATE_OFF = "featureGateOff"
    """Objects use a field that the version drops, because its feature gate is off by default."""
    GATE_DEFECTIVE = "gateDefective"
    """Objects use a field that the version handles wrongly, although its feature gate is on."""
    LAYOUT_REJECTED = "layoutRejected"
    """Objects have fields together that the version does not accept in one object any more."""
    API_REMOVED = "apiRemoved"
    """An API version that is in use is not served any more."""
    API_DEPRECATED = "apiDeprecated"
    """An API version that is in use will not be served some day."""
    SETTINGS_INVALID = "settingsInvalid"
    """The settings of the cluster make no sense to this version, as when one was removed."""
    OVERLAY_MODE_DIFFERS = "overlayModeDiffers"
    """The installation is `OptOut`, and the overlay that it seems to come from is `OptIn` in this version."""
    TRANSLATION_VERSION_DIFFERS = "translationVersionDiffers"
    """A translation was made by another translation version."""
    PROFILE_DIFFERS = "profileDiffers"
    """A translation was made with another version of a driver profile, or with one that is gone."""
    NOT_SIGNED = "notSigned"
    """A pod that waits for its template has no signature that this version can verify."""


class UpgradeFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One consequence of an upgrade.

    Attributes:
        severity: An error breaks something, a warning may.
        objects: `Kind/namespace/name`, at most `MAX_OBJECTS`.
        count: The number of all objects; 0 where it is not about objects.
    """

    severity: Severity
    code: UpgradeCode
    message: str
    fix: str
    objects: tuple[str, ...] = ()
    count: int = 0


class UpgradeAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The document of `drawbridge check-upgrade -o json`.

    Attributes:
        kubernetes_version: The cluster's version; empty if it is not known.
        target_version: The version of Kubernetes after the upgrade.
        client_version: The version of Drawbridge to which is upgraded: that of this command.
    """

    kubernetes_version: str
    target_version: str
    client_version: str
    findings: tuple[UpgradeFinding, ...]


def finding(
    severity: Severity, code: UpgradeCode, message: str, fix: str, objects: Iterable[str] = ()
) -> UpgradeFinding:
    """Return a finding about objects."""
    names = sorted(objects)
    return UpgradeFinding(
        severity=severity,
        code=code,
        message=message,
        fix=fix,
        objects=tuple(names[:MAX_OBJECTS]),
        count=len(names),
    )


class UpgradeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a cluster that no snapshot has.

    Attributes:
        metrics: The metrics of the API server; empty if they may not be read.
        settings_problem: The reason its settings make no sense to this version; empty if they do.
        opt_out_overlays: The overlays with marks in its `OptOut` installation that are `OptIn` in this version.
        kept_versions: Content hash to a version of a profile that it keeps.
        unreadable: The resources that the user may not read.
    """

    metrics: str = ""
    settings_problem: str = ""
    opt_out_overlays: tuple[str, ...] = ()
    kept_versions: Mapping[str, Profile] = {}
    unreadable: tuple[str, ...] = ()
