"""Names that Drawbridge defines in the API: group, annotations, labels, object names.

The domain `.internal` is reserved for private use. `GROUP` is the only place that spells it, so that
it can change before the first release.
"""

from typing import Final

GROUP: Final = "drawbridge.internal"
NAME: Final = "drawbridge"
DOCUMENTATION: Final = ""
"""The address of the published site that `make docs` builds, such as `https://docs.example.com`, with a folder
for each version. Whoever publishes the site sets it here. Nothing links to the site while it is empty."""
DISTRIBUTION: Final = "drawbridge-dra"
"""The installed Python distribution, whose version is that of every process."""

REQUEST_ANNOTATION: Final = f"{GROUP}/request"
"""The annotation of a translated pod with its original keys and the facts from which its claims are
derived."""

SIGNATURE_ANNOTATION: Final = f"{GROUP}/signature"
"""The annotation of a translated pod that proves that the webhook has checked the translation."""

TRANSLATE_LABEL: Final = f"{GROUP}/translate"
"""The label of pods and namespaces for translation: "false" opts out; on a namespace "true" opts
in, and `TRANSLATE_SELECTED` leaves it to the pods, so that those with "true" are translated."""

TRANSLATE_SELECTED: Final = "selected"
"""Value of the label above on a namespace that moves in parts."""

ENFORCEMENT_LABEL: Final = f"{GROUP}/enforcement"
"""The label of namespaces with the handling of their invalid objects: "deny", "warn" or "off"."""

MANAGED_LABEL: Final = f"{GROUP}/managed"
"""The label of ResourceClaimTemplates and reports of policies that the controller created; only
those are garbage-collected."""

IN_USE_TAINT: Final = f"{GROUP}/in-use"
"""The taint of devices that containers may still use for a claim that the API server no longer has;
set by the node driver."""

STRATEGY_ANNOTATION: Final = f"{GROUP}/strategy"
"""The annotation of pods and DeviceClasses with the strategy that chooses nodes and devices."""

ROTATE_ANNOTATION: Final = f"{GROUP}/rotate"
"""The annotation that requests one rotation, with any value, on the Secret of the certificate
authority or of the signing keys."""

GROUP_SCHEDULER_ANNOTATION: Final = f"{GROUP}/scheduler"
"""The annotation of a PodGroup with the schedulerName of all of its pods, for the webhook: pods without claims do
not tell it."""

GANG_ANNOTATION: Final = f"{GROUP}/gang"
"""The annotation of a PodGroup with the gang of another scheduler for which the controllers have created it."""

QUOTA_GATE: Final = f"{GROUP}/quota"
"""The scheduling gate of pods that wait until the DeviceQuotas of their namespace let them through."""

QUOTA_GATE_POLICY: Final = f"{NAME}-quota-gate"
"""The MutatingAdmissionPolicy that adds this gate, and the ValidatingAdmissionPolicy that demands it."""

SIGNING_SECRET: Final = f"{NAME}-signing"
"""The Secret with the keys of signatures."""

SCHEDULER_NAME: Final = f"{NAME}-scheduler"
DEFAULT_SCHEDULER_NAME: Final = "default-scheduler"

NAMESPACE: Final = f"{NAME}-system"
"""The namespace of the manifests."""

SERVICE: Final = f"{NAME}-webhook"
"""The Service in front of the webhook."""

CONFIGURATION: Final = f"zz-{NAME}"
"""The name of the webhook configurations; sorts last, after webhooks that may add device keys."""

CERTIFICATES_REPORTER: Final = f"{NAME}.certificates"
"""The reporting controller of the events of `python -m controllers.certificates`."""

OBSERVER_REPORTER: Final = f"{NAME}.observer"
"""The reporting controller of the events of `python -m observer`."""

SIDECAR_REPORTER: Final = f"{NAME}.sidecar"
"""The reporting controller of the events of `python -m sidecar`."""

CONTROLLER_ACCOUNT: Final = f"{NAME}-controller"
"""The service account of the controllers, and their Lease in `NAMESPACE`; its holder removes gates."""

OBSERVER_NAMESPACE: Final = f"{NAME}-observer"
"""The namespace of manifests/observer."""

CONTROLLER_REPORTER: Final = f"{NAME}.controller"
"""The reporting controller of the events of `python -m controllers`."""

BRIDGE_ACCOUNT: Final = f"{NAME}-bridge"
"""The service account of the bridge, of scheduler and sidecar."""

BRIDGE_LEASE: Final = BRIDGE_ACCOUNT
"""The Lease of the bridge, in `NAMESPACE`; its holder is the one process that allocates."""

FIELD_MANAGER_PREFIX: Final = f"{NAME}/"
"""The prefix of the field manager of the bridge's writes to claims, before the identity of the
Lease's holder."""

FENCE: Final = f"{NAME}-fence"
"""The ValidatingAdmissionPolicy that lets one account allocate the devices of an owned driver."""

HOLDER_FENCE: Final = f"{FENCE}-holder"
"""The ValidatingAdmissionPolicy that lets the bridge write allocations only while it holds its Lease."""
FIELD_MANAGERS: Final = {
    "argocd-controller": "Argo CD",
    "argocd-application-controller": "Argo CD",
    "kustomize-controller": "Flux",
    "helm-controller": "Flux",
}
"""Field manager to what it is of, for those that compare a cluster with a repository."""
EXPORTER_CLAIMS: Final = "KUBERNETES_ENABLE_DRA"
"""The variable of NVIDIA's DCGM exporter with which it finds the pods of devices by claims."""
