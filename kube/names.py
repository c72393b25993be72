"""Names that Drawbridge defines in the API: group, annotations, labels, object names.

The domain `.internal` is reserved for private use. `GROUP` is the only place that spells it, so that
it can change before the first release.
"""

from typing import Final

GROUP: Final = "drawbridge.internal"
NAME: Final = "drawbridge"
DOCUMENTATION: Final = f"https://docs.{GROUP}"
"""The address of the site that `make docs` builds, with a folder for each version. As the domain, it is for
private use: whoever publishes the site puts its address here, or lets a host of this name serve it."""
DISTRIBUTION: Final = "drawbridge-dra"
"""The installed Python distribution, whose version is that of every process."""

REQUEST_ANNOTATION: Final = f"{GROUP}/request"
"""On a translated pod: its original keys and the facts from which its claims are derived."""

SIGNATURE_ANNOTATION: Final = f"{GROUP}/signature"
"""On a translated pod: proof that the webhook has checked the translation."""

TRANSLATE_LABEL: Final = f"{GROUP}/translate"
"""On a pod or namespace: "false" opts out of translation; on a namespace "true" opts in, and
`TRANSLATE_SELECTED` leaves it to the pods, of which those with "true" are translated."""

TRANSLATE_SELECTED: Final = "selected"
"""Value of the label above on a namespace that moves in parts."""

ENFORCEMENT_LABEL: Final = f"{GROUP}/enforcement"
"""On a namespace: "deny", "warn" or "off", how its invalid objects are handled."""

MANAGED_LABEL: Final = f"{GROUP}/managed"
"""On a ResourceClaimTemplate or a report of policies that the controller created; only those are
garbage-collected."""

IN_USE_TAINT: Final = f"{GROUP}/in-use"
"""Of devices that containers of a claim may still use which the API server no longer has; set by the
node driver."""

STRATEGY_ANNOTATION: Final = f"{GROUP}/strategy"
"""On a pod or DeviceClass: the strategy that chooses nodes and devices."""

ROTATE_ANNOTATION: Final = f"{GROUP}/rotate"
"""On the Secret of the certificate authority, or of the signing keys: any value requests one rotation."""

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

OBSERVER_NAMESPACE: Final = f"{NAME}-observer"
"""The namespace of manifests/observer."""

CONTROLLER_REPORTER: Final = f"{NAME}.controller"
"""The reporting controller of the events of `python -m controllers`."""

BRIDGE_ACCOUNT: Final = f"{NAME}-bridge"
"""The service account of the bridge, of scheduler and sidecar."""

BRIDGE_LEASE: Final = BRIDGE_ACCOUNT
"""The Lease of the bridge, in `NAMESPACE`; its holder is the one process that allocates."""

FIELD_MANAGER_PREFIX: Final = f"{NAME}/"
"""Before the identity of the Lease's holder: the field manager of the bridge's writes to claims."""

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
