"""Parts of the CustomResourceDefinition that the types of AllocatorOwnership cannot say."""

from collections.abc import Mapping
from typing import Final

from kube.api.ownership import (
    KIND,
    MAX_CONSUMERS,
    MAX_DRIVERS,
    MAX_HELD_BACK,
    MAX_WEIGHTS,
    OWNERSHIP,
    VERSION,
    AllocatorOwnership,
    AllocatorOwnershipSpec,
    AllocatorOwnershipStatus,
    HeldBackClaim,
    HeldBackDevice,
    OwnedDriver,
    OwnedDriverStatus,
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

_CONDITIONS: Final[Entry] = {
    "maxItems": 8,
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["type"],
}
_SETTINGS: Final[Mapping[str, Entry]] = {
    "capacityWeights": {
        "description": "How much each capacity counts in the load of a shared device, by which "
        "strategies prefer devices and nodes. Without weights the fullest capacity counts.",
        "maxProperties": MAX_WEIGHTS,
    },
    "maxConsumersPerDevice": {
        "description": "How many claims may use a device at a time, at most; 0 for no limit.",
        "minimum": 0,
        "maximum": MAX_CONSUMERS,
    },
    "maxConsumersPerNode": {
        "description": "How many uses the devices of a node may have together; 0 for no limit.",
        "minimum": 0,
        "maximum": MAX_CONSUMERS,
    },
}
MAX_RESULTS: Final = 32
"""Devices of a claim. Source: k8s.io/api v0.37.1, resource/v1, AllocationResultsMaxSize."""

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
        **_SETTINGS,
    },
    AllocatorOwnershipStatus: {
        "observedGeneration": {
            "description": "Of the spec that this is about.",
            "format": "int64",
            "minimum": 0,
        },
        "conditions": {
            "description": "Serving: a bridge leads and allocates for the drivers.",
            **_CONDITIONS,
        },
        "holder": {
            "description": "Identity of the process that led last, as in the Lease.",
            "maxLength": 253,
        },
        "drivers": {
            "description": "Each owned driver, as the leading process sees it.",
            "maxItems": MAX_DRIVERS,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
        "heldBack": {
            "description": "Devices of pods that were deleted by force. Nobody gets them until the driver "
            "says that they are free, or until the time has come.",
            "maxItems": MAX_HELD_BACK,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["claimUID", "podUID"],
        },
    },
    OwnedDriverStatus: {
        "name": {"description": "The driver.", "minLength": 1, "maxLength": 63},
        **_SETTINGS,
        "conditions": {
            "description": "Serving: devices of the driver are allocated.",
            **_CONDITIONS,
        },
    },
    HeldBackClaim: {
        "claimUID": {"description": "Of the claim that had them.", "maxLength": 128},
        "namespace": {"description": "Of the pod.", "maxLength": 63},
        "pod": {"description": "The pod that was deleted by force.", "maxLength": 253},
        "podUID": {"description": "Its UID.", "maxLength": 128},
        "node": {"description": "That it ran on.", "maxLength": 253},
        "until": {"description": "When they are given again at the latest.", "format": "date-time"},
        "devices": {"description": "The devices.", "maxItems": MAX_RESULTS},
    },
    HeldBackDevice: {
        "driver": {"description": "Its driver.", "maxLength": 63},
        "pool": {"description": "Its pool.", "maxLength": 253},
        "device": {"description": "Its name.", "maxLength": 63},
        "shareID": {"description": "Of a share of it.", "maxLength": 128},
        "consumedCapacity": {
            "description": "What the share takes of its capacities.",
            "maxProperties": MAX_RESULTS,
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
