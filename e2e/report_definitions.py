"""CustomResourceDefinitions of the kinds for reports of policy engines, for stories.

They accept and drop what the published ones do, for the fields that reports of the audit have.

Source: openreports/reports-api, crd/openreports.io/v1alpha1; kubernetes-sigs/wg-policy-prototypes,
policy-report/crd/wgpolicyk8s.io/v1alpha2.
"""

import http.client
from functools import partial
from typing import Final

from e2e.access import Access, Object
from kube.api.urls import (
    CLUSTER_POLICY_REPORTS,
    CLUSTER_REPORTS,
    POLICY_REPORTS,
    REPORTS,
    Resource,
)
from testing.documents import api_object

KINDS: Final = {
    REPORTS: "Report",
    CLUSTER_REPORTS: "ClusterReport",
    POLICY_REPORTS: "PolicyReport",
    CLUSTER_POLICY_REPORTS: "ClusterPolicyReport",
}
TIMEOUT_S: Final = 90.0
OUTCOMES: Final = ("pass", "fail", "warn", "error", "skip")

_STRING: Final = {"type": "string"}
_REFERENCE_FIELDS: Final = (
    "apiVersion",
    "fieldPath",
    "kind",
    "name",
    "namespace",
    "resourceVersion",
)
_REFERENCE: Final = {
    "type": "object",
    "properties": dict.fromkeys((*_REFERENCE_FIELDS, "uid"), _STRING),
    "x-kubernetes-map-type": "atomic",
}
_TIMESTAMP: Final = {
    "type": "object",
    "required": ["nanos", "seconds"],
    "properties": {
        "nanos": {"type": "integer", "format": "int32"},
        "seconds": {"type": "integer", "format": "int64"},
    },
}
_RESULT: Final = {
    "type": "object",
    "required": ["policy"],
    "properties": {
        **dict.fromkeys(("category", "message", "policy", "rule", "source"), _STRING),
        "properties": {"type": "object", "additionalProperties": _STRING},
        "resources": {"type": "array", "items": _REFERENCE},
        "result": {"type": "string", "enum": [*OUTCOMES]},
        "scored": {"type": "boolean"},
        "severity": {"type": "string", "enum": ["critical", "high", "low", "medium", "info"]},
        "timestamp": _TIMESTAMP,
    },
}
_SCHEMA: Final = {
    "type": "object",
    "properties": {
        **dict.fromkeys(("apiVersion", "kind"), _STRING),
        "metadata": {"type": "object"},
        "scope": _REFERENCE,
        "summary": {
            "type": "object",
            "properties": {outcome: {"type": "integer"} for outcome in OUTCOMES},
        },
        "results": {"type": "array", "items": _RESULT},
    },
}


def definition(resource: Resource) -> Object:
    """The definition of a kind."""
    kind = KINDS[resource]
    return api_object(
        "CustomResourceDefinition",
        _name(resource),
        spec={
            "group": resource.group,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "names": {"plural": resource.plural, "singular": kind.lower(), "kind": kind},
            "versions": [
                {
                    "name": resource.version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": _SCHEMA},
                    "additionalPrinterColumns": [
                        {
                            "name": outcome.capitalize(),
                            "type": "integer",
                            "jsonPath": f".summary.{outcome}",
                        }
                        for outcome in OUTCOMES
                    ],
                }
            ],
        },
    )


def install(cluster: Access) -> None:
    """Have all kinds served."""
    cluster.apply([definition(resource) for resource in KINDS])
    for resource in KINDS:
        cluster.wait_until(
            partial(is_served, cluster, resource),
            f"{_name(resource)} is served",
            timeout_s=TIMEOUT_S,
        )


def is_served(cluster: Access, resource: Resource) -> bool:
    """Return True if the API server lists objects of a kind."""
    return cluster.request("GET", resource.path())[0] == http.client.OK


def remove(cluster: Access) -> None:
    """Delete all kinds, and with them all reports."""
    names = (_name(resource) for resource in KINDS)
    cluster.kubectl("delete", "customresourcedefinition", "--ignore-not-found", "--wait", *names)


def _name(resource: Resource) -> str:
    return f"{resource.plural}.{resource.group}"
