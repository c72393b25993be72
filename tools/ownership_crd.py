"""Parts of the CustomResourceDefinition that the types of AllocatorOwnership cannot say."""

from collections.abc import Mapping
from typing import Final

from kube.api.ownership import (
    KIND,
    MAX_DRIVERS,
    OWNERSHIP,
    VERSION,
    AllocatorOwnership,
    AllocatorOwnershipSpec,
    AllocatorOwnershipStatus,
    OwnedDriver,
)
from kube.api.urls import ALLOCATOR_OWNERSHIPS
from tools.custom_resources import (
    CONDITION_FIELDS,
    CONDITION_REQUIRED,
    SUBDOMAIN,
    Document,
    Entry,
    KindWords,
    column,
    name_schema,
)

SHORT_NAME: Final = "aown"

_FIELDS: Final[Mapping[type, Mapping[str, Entry]]] = {
    **CONDITION_FIELDS,
    AllocatorOwnershipSpec: {
        "drivers": {
            "description": "The drivers whose devices the bridge allocates. Change it with `drawbridge "
            "bridge own` and `drawbridge bridge release`, which change the fence, too.",
            "maxItems": MAX_DRIVERS,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
    },
    OwnedDriver: {
        "name": {"description": "spec.driver of its ResourceSlices.", **name_schema(SUBDOMAIN, 63)},
    },
    AllocatorOwnershipStatus: {
        "observedGeneration": {
            "description": "Of the spec that this is about.",
            "format": "int64",
            "minimum": 0,
        },
        "conditions": {
            "description": "Serving: a bridge leads and allocates for the drivers.",
            "maxItems": 8,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
        "holder": {
            "description": "Identity of the process that leads, as in the Lease.",
            "maxLength": 253,
        },
    },
}

_RULES: Final[Mapping[type, list[Document]]] = {
    AllocatorOwnership: [
        {
            "rule": f"self.metadata.name == '{OWNERSHIP}'",
            "message": f"there is one {KIND}, and its name is {OWNERSHIP}",
        }
    ]
}

WORDS: Final = KindWords(
    kind=KIND,
    short_name=SHORT_NAME,
    version=VERSION,
    resource=ALLOCATOR_OWNERSHIPS,
    view=AllocatorOwnership,
    description="Which drivers the bridge allocates instead of kube-scheduler.",
    parts={"spec": "Owned drivers.", "status": "What the bridge reports."},
    columns=(
        column("Drivers", ".spec.drivers[*].name"),
        column("Holder", ".status.holder"),
        column("Serving", '.status.conditions[?(@.type=="Serving")].status'),
        column("Age", ".metadata.creationTimestamp", "date"),
    ),
    fields=_FIELDS,
    rules=_RULES,
    required=CONDITION_REQUIRED,
)


def definition() -> Document:
    """Return the definition as it is applied."""
    return WORDS.definition()
