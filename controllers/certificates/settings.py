"""Settings of the certificate controller, `python -m controllers.certificates`."""

from collections.abc import Mapping
from typing import Final

from process.certificates.certificates import CertificateSettings
from process.certificates.signing import SigningSettings
from process.model.durations import PositiveDuration
from process.model.settings import Name, ProcessSettings
from process.profiles.translation import TranslationSettings
from process.running.leader_election import LeaderElectionSettings, ReconcileSettings


class CertificateElectionSettings(LeaderElectionSettings, frozen=True, kw_only=True):
    """The election of the replica that writes."""

    resource_name: Name = "drawbridge-certificates"
    """Name of the Lease, in `namespace`, whose holder writes."""


class CertificateControllerSettings(ReconcileSettings, frozen=True, kw_only=True):
    """The process; the section `certificates` is for its products, shared with the webhook."""

    leader_election: CertificateElectionSettings = CertificateElectionSettings()

    endpoint_check_period: PositiveDuration = PositiveDuration(1)
    """The period between calls of the webhook, while its configurations lack rules because it did
    not answer."""

    configuration_grace_period: PositiveDuration = PositiveDuration(30)
    """A webhook configuration that is absent or changed for less is not reported: it is an apply, a
    start or an uninstall."""


class Settings(ProcessSettings, frozen=True, kw_only=True):
    """The part of the file that the certificate controller reads."""

    certificates: CertificateSettings = CertificateSettings()
    signing: SigningSettings = SigningSettings()
    translation: TranslationSettings = TranslationSettings()
    certificate_controller: CertificateControllerSettings = CertificateControllerSettings()


VARIABLES: Final[Mapping[str, str]] = {
    "DRAWBRIDGE_NAMESPACE": "namespace",
    "DRAWBRIDGE_LOG_LEVEL": "logLevel",
    "DRAWBRIDGE_PROFILES": "translation.profilesDirectory",
    "DRAWBRIDGE_SERVING_NAMES": "certificates.extraNames",
    "DRAWBRIDGE_CERTIFICATES": "certificates.directory",
    "DRAWBRIDGE_BIND": "certificateController.bindAddress",
    "DRAWBRIDGE_PROBE_PORT": "certificateController.probePort",
    "DRAWBRIDGE_METRICS_PORT": "certificateController.metricsPort",
}
"""Environment variable to the field that it sets."""
