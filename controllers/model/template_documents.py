"""The ResourceClaimTemplates that the controllers create."""

from collections.abc import Mapping
from typing import Any

from kube.names import MANAGED_LABEL, NAME
from translation.compiling.claims import Claim


def template_document(namespace: str, claim: Claim) -> Mapping[str, Any]:
    """Return the template of a claim."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {
            "name": claim.template,
            "namespace": namespace,
            "labels": {MANAGED_LABEL: "true", "app.kubernetes.io/managed-by": NAME},
        },
        "spec": claim.spec,
    }
