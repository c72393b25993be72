"""Every write of the controllers and of the certificate controller, by name.

A name is a module, a function in it, and the method of `kube.client.client.Client` that it calls.
`tests/e2e/test_writes.py` compares the names with the code, and `e2e/test_fault_killed_writes.py` kills
the writer in the middle of each.
"""

from collections.abc import Mapping
from typing import Final

CERTIFICATE_WRITES: Final = (
    "controllers.certificates.controller.CertificateController._create_secret create",
    "controllers.certificates.controller.CertificateController._hand_out create",
    "controllers.certificates.controller.CertificateController._hand_out patch",
    "controllers.certificates.controller.CertificateController._patch patch",
    "controllers.certificates.controller.CertificateController._patch_secret patch",
    "controllers.certificates.path_secret.PathSecret._write create",
    "controllers.certificates.path_secret.PathSecret._write patch",
    "controllers.certificates.signing_keys.SigningKeyController._rotate create",
    "controllers.certificates.signing_keys.SigningKeyController._rotate patch",
)
"""The writes of `python -m controllers.certificates`."""

CONTROLLER_WRITES: Final = (
    "controllers.audit.controller.AuditController._write_mark create",
    "controllers.audit.controller.AuditController._write_mark patch",
    "controllers.policies.controller.PolicyController._write patch",
    "controllers.profiles.controller.ProfileController._update_status patch",
    "controllers.profiles.controller.ProfileController._write create",
    "controllers.profiles.controller.ProfileController._write patch",
    "controllers.templates.controller.TemplateController._create create",
    "controllers.templates.controller.TemplateController._delete delete",
    "controllers.templates.controller.TemplateController._delete_claim delete",
    "controllers.templates.controller.TemplateController._delete_unused delete",
    "kube.runtime.events.EventRecorder._write create",
    "kube.runtime.leader.Leader._write create",
    "kube.runtime.leader.Leader._write patch",
)
"""The writes of `python -m controllers`; the last three are those of other processes, too."""

QUOTA_WRITES: Final = ("controllers.quotas.gates.QuotaGateController._remove patch",)
"""The writes of the same process with scheduling gates in use: `e2e/test_quota_gates.py` kills it in these."""

NOT_KILLED: Final[Mapping[str, str]] = {
    "controllers.audit.policy_report_writer.PolicyReportWriter._delete delete": (
        "is made by the next audit, which compares what is stored"
    ),
    "controllers.audit.policy_report_writer.PolicyReportWriter._replace patch": (
        "is made by the next audit, which compares what is stored"
    ),
    "controllers.gates.controller.FeatureGateController._probe create": "is a dry run",
    "controllers.gates.controller.FeatureGateController._publish patch": (
        "tells what the next leader finds out, too"
    ),
    "controllers.groups.controller.GangController._create create": (
        "is made by the next leader, which finds the pods without their PodGroup"
    ),
    "controllers.groups.controller.GangController._delete_unused delete": (
        "is made by the next leader, once it has seen no pod for as long"
    ),
    "controllers.quotas.controller.QuotaStatusController._write patch": (
        "tells what the next leader finds out, too"
    ),
    "controllers.uninstall.unlock._remove patch": "is tried again until no pod has a gate",
    "controllers.uninstall.unlock.unlock_pods delete": "is made by the next attempt of the Job",
    "controllers.workloads.controller.WorkloadController._create create": (
        "is made for the pod when it comes, by the controller of templates"
    ),
    "kube.runtime.events.EventRecorder._update patch": "counts how often an event was repeated",
}
"""Writes that nothing depends on, with the reason."""
