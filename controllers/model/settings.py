"""Settings of the controllers, `python -m controllers`."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from clusterstate.settings import ValidationSettings
from process.certificates.signing import SigningSettings
from process.model.durations import PositiveDuration
from process.model.settings import Name, Positive, ProcessSettings
from process.profiles.translation import TranslationSettings
from process.running.leader_election import LeaderElectionSettings, ReconcileSettings


class ReportFormat(StrEnum):
    """The API of the audit's reports; the value is its name in settings."""

    NONE = "None"
    """No reports; findings are in events, metrics and the log."""
    OPEN_REPORTS = "OpenReports"
    """Report and ClusterReport of openreports.io/v1alpha1."""
    POLICY_REPORT = "PolicyReport"
    """PolicyReport and ClusterPolicyReport of wgpolicyk8s.io/v1alpha2, the predecessor."""


class ControllerElectionSettings(LeaderElectionSettings, frozen=True, kw_only=True):
    """The leader election of the controllers."""

    resource_name: Name = "drawbridge-controller"
    """Name of the Lease, in `namespace`, whose holder writes."""


class ControllerSettings(ReconcileSettings, frozen=True, kw_only=True):
    """The controllers."""

    leader_election: ControllerElectionSettings = ControllerElectionSettings()

    template_unused_period: PositiveDuration = PositiveDuration(600)
    """A template of ours that no live pod and no workload has used for so long is deleted. Long
    enough for a rollout or a restarted Job to find it again; a missing one is recreated in
    milliseconds anyway."""

    templates_of_workloads: bool = False
    """Whether the templates of workloads with device keys are created when the workloads are applied,
    before their pods; else when a pod needs them, of which Kubernetes writes an event
    (`FailedResourceClaimCreation`) at the first pod. Costs a watch of each workload kind."""

    template_collect_period: PositiveDuration = PositiveDuration(60)
    """The period between looks for unused templates. A look costs one list of each workload kind,
    and only where a template is due."""

    policy_sync_period: PositiveDuration = PositiveDuration(1)
    """The period between reconciliations of DeviceCompatibilityPolicies; a change is handled at
    once when none was for so long, else together with other changes in that time. Longer where one
    takes long, so that no churn of ResourceSlices costs more than a tenth of a core."""

    policy_counts_period: PositiveDuration = PositiveDuration(30)
    """The period between writes of a policy's status in which only numbers change, as when nodes
    come and go."""

    quota_status_period: PositiveDuration = PositiveDuration(5)
    """The period between writes of a DeviceQuota's status in which only amounts change, as with every
    claim."""

    quota_gate_timeout: PositiveDuration = PositiveDuration(5)
    """The timeout of the write that removes the scheduling gate of a DeviceQuota. A new leader waits for
    so long, so that no write of the one before is under way when it decides."""

    quota_gate_check_period: PositiveDuration = PositiveDuration(30)
    """The period between looks at whether the policies that hold pods back for DeviceQuotas are
    installed."""

    quota_gate_alone_timeout: PositiveDuration = PositiveDuration(600)
    """The time for which a pod with the gate of DeviceQuotas and one other gate is left to the remover of that. After
    it the quota decides, since the other may be removed last, too."""

    pod_group_unused_period: PositiveDuration = PositiveDuration(60)
    """A PodGroup that was created for a gang of another scheduler, and that no pod has named for so long, is
    deleted. Long enough for pods that are replaced."""

    profile_unused_period: PositiveDuration = PositiveDuration(600)
    """A version of a DeviceTranslationProfile that is not in force, and that no live pod has named for so
    long, is not kept any longer. Long enough for pods that are being created."""

    inventory_update_period: PositiveDuration = PositiveDuration(5)
    """The period between looks at whether the inventory is larger than ever before."""

    feature_gate_period: PositiveDuration = PositiveDuration(600)
    """The period between dry runs that tell which feature gates the API server has on."""

    audit_period: PositiveDuration = PositiveDuration(600)
    """The period between audits of all stored objects, for those that a rule would refuse by
    now."""

    max_audit_events: Positive = 50
    """Events that one audit writes at most, for which namespaces take turns; the others follow
    with the next."""

    audit_reports: ReportFormat = ReportFormat.NONE
    """The objects in which the audit reports its findings, one for each namespace and one for
    cluster-scoped objects: `OpenReports` (openreports.io), `PolicyReport` (wgpolicyk8s.io) or `None`. Their
    CustomResourceDefinitions have to be installed."""


class Settings(ProcessSettings, frozen=True, kw_only=True):
    """The settings of the controllers."""

    translation: TranslationSettings = TranslationSettings()
    validation: ValidationSettings = ValidationSettings()
    signing: SigningSettings = SigningSettings()
    controllers: ControllerSettings = ControllerSettings()


VARIABLES: Final[Mapping[str, str]] = {
    "DRAWBRIDGE_NAMESPACE": "namespace",
    "DRAWBRIDGE_LOG_LEVEL": "logLevel",
    "DRAWBRIDGE_PROFILES": "translation.profilesDirectory",
    "DRAWBRIDGE_BIND": "controllers.bindAddress",
    "DRAWBRIDGE_PROBE_PORT": "controllers.probePort",
    "DRAWBRIDGE_METRICS_PORT": "controllers.metricsPort",
}
"""Environment variable to the field that it sets."""
