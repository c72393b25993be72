"""Reviews of claims, as the API server would send them."""

from typing import Any

Object = dict[str, Any]


def claim_review(document: Object) -> Object:
    """Return the review of a ResourceClaim that is created."""
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u",
            "kind": {"group": "resource.k8s.io", "version": "v1", "kind": "ResourceClaim"},
            "resource": {"group": "resource.k8s.io", "version": "v1", "resource": "resourceclaims"},
            "namespace": "default",
            "operation": "CREATE",
            "object": document,
        },
    }
