"""The API server's resources that we call, as its URLs name them."""

from typing import Final

from kube.api import policy
from kube.api.url import Resource
from kube.product import GROUP

_DRA: Final = "resource.k8s.io"
_APPS: Final = "apps"
_BATCH: Final = "batch"

NAMESPACES: Final = Resource(version="v1", plural="namespaces", namespaced=False)
NODES: Final = Resource(version="v1", plural="nodes", namespaced=False)
PODS: Final = Resource(version="v1", plural="pods")
RESOURCE_QUOTAS: Final = Resource(version="v1", plural="resourcequotas")
SECRETS: Final = Resource(version="v1", plural="secrets")
EVENTS: Final = Resource(group="events.k8s.io", version="v1", plural="events")

DEVICE_TAINT_RULES: Final = Resource(
    group=_DRA, version="v1", plural="devicetaintrules", namespaced=False
)
DEVICE_CLASSES: Final = Resource(group=_DRA, version="v1", plural="deviceclasses", namespaced=False)
RESOURCE_SLICES: Final = Resource(
    group=_DRA, version="v1", plural="resourceslices", namespaced=False
)
RESOURCE_CLAIMS: Final = Resource(group=_DRA, version="v1", plural="resourceclaims")
RESOURCE_CLAIM_TEMPLATES: Final = Resource(
    group=_DRA, version="v1", plural="resourceclaimtemplates"
)

WORKLOADS: Final = (
    Resource(group=_APPS, version="v1", plural="daemonsets"),
    Resource(group=_APPS, version="v1", plural="deployments"),
    Resource(group=_APPS, version="v1", plural="replicasets"),
    Resource(group=_APPS, version="v1", plural="statefulsets"),
    Resource(group=_BATCH, version="v1", plural="cronjobs"),
    Resource(group=_BATCH, version="v1", plural="jobs"),
)
"""Everything built in that makes pods of a template."""

MUTATING_WEBHOOK_CONFIGURATIONS: Final = Resource(
    group="admissionregistration.k8s.io",
    version="v1",
    plural="mutatingwebhookconfigurations",
    namespaced=False,
)
VALIDATING_WEBHOOK_CONFIGURATIONS: Final = Resource(
    group="admissionregistration.k8s.io",
    version="v1",
    plural="validatingwebhookconfigurations",
    namespaced=False,
)
WEBHOOK_CONFIGURATIONS: Final = (MUTATING_WEBHOOK_CONFIGURATIONS, VALIDATING_WEBHOOK_CONFIGURATIONS)
"""Those that hold a caBundle."""

CONFIG_MAPS: Final = Resource(version="v1", plural="configmaps")
CUSTOM_RESOURCE_DEFINITIONS: Final = Resource(
    group="apiextensions.k8s.io", version="v1", plural="customresourcedefinitions", namespaced=False
)

DEVICE_COMPATIBILITY_POLICIES: Final = Resource(
    group=GROUP, version=policy.VERSION, plural="devicecompatibilitypolicies", namespaced=False
)
