"""A ResourceClaimTemplate to probe feature gates: the API server drops fields of gates that are off. Pure.

Source: k8s.io/kubernetes v1.37.1, pkg/registry/resource/resourceclaimtemplate, dropDisabledFields.
"""

from collections.abc import Mapping
from typing import Any, Final

from clusterstate.published_gates import CONSUMABLE_CAPACITY
from kube.api.resource import ResourceClaimTemplate
from kube.names import MANAGED_LABEL, NAME
from translation.compiling.claims import template_name

_SPEC: Final[Mapping[str, Any]] = {
    "spec": {
        "devices": {
            "requests": [
                {
                    "name": "probe",
                    "exactly": {
                        "deviceClassName": f"{NAME}-probe",
                        "capacity": {"requests": {"memory": "1Mi"}},
                    },
                }
            ]
        }
    }
}


def probe_document(namespace: str) -> Mapping[str, Any]:
    """Return the template; it is never stored.

    Its name and label are those of templates that the account may create.
    """
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {
            "name": template_name(f"{NAME}-probe", ""),
            "namespace": namespace,
            "labels": {MANAGED_LABEL: "true"},
        },
        "spec": _SPEC,
    }


def read_gates(answer: ResourceClaimTemplate) -> Mapping[str, bool]:
    """Return the gates that the answer to the dry run tells.

    >>> from kube.api.meta import convert
    >>> read_gates(convert(probe_document("team"), ResourceClaimTemplate))
    {'DRAConsumableCapacity': True}
    """
    requests = answer.spec.spec.devices.requests or ()
    has_capacity = any(
        request.exactly is not None and request.exactly.capacity is not None for request in requests
    )
    return {CONSUMABLE_CAPACITY: has_capacity}
