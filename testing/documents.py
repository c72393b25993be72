"""Objects of the API as parsed documents, as the API server sends them and as manifests have them."""

from collections.abc import Mapping
from typing import Any, Final

Document = dict[str, Any]

DRA_VERSION: Final = "resource.k8s.io/v1"
OWN_VERSION: Final = "drawbridge.internal/v1alpha1"

NVIDIA: Final = "gpu.nvidia.com"
NVIDIA_CONFIG: Final = "resource.nvidia.com/v1beta1"
EXAMPLE: Final = "gpu.example.com"

_KINDS: Final = {
    "v1": "Binding ConfigMap LimitRange Namespace Node PersistentVolume PersistentVolumeClaim Pod"
    " ResourceQuota Secret Service ServiceAccount",
    "apps/v1": "DaemonSet Deployment ReplicaSet StatefulSet",
    "batch/v1": "CronJob Job",
    "events.k8s.io/v1": "Event",
    "policy/v1": "PodDisruptionBudget",
    "autoscaling/v2": "HorizontalPodAutoscaler",
    "scheduling.k8s.io/v1": "PriorityClass",
    "scheduling.k8s.io/v1beta1": "PodGroup",
    "coordination.k8s.io/v1": "Lease",
    "apiextensions.k8s.io/v1": "CustomResourceDefinition",
    "rbac.authorization.k8s.io/v1": "ClusterRole ClusterRoleBinding",
    DRA_VERSION: "DeviceClass DeviceTaintRule ResourceClaim ResourceClaimTemplate ResourceSlice",
    OWN_VERSION: "AllocatorOwnership DeviceCompatibilityPolicy DeviceQuota DeviceTranslationProfile",
    "cli.drawbridge.internal/v1": "Snapshot TestSuite",
    "kubeflow.org/v1": "PyTorchJob",
    "scheduling.sigs.k8s.io/v1alpha1": "ElasticQuota",
    "scheduling.koordinator.sh/v1alpha1": "Device",
}
_API_VERSIONS: Final = {
    kind: version for version, kinds in _KINDS.items() for kind in kinds.split()
}
_METADATA: Final = {
    *("annotations", "creationTimestamp", "deletionTimestamp", "finalizers", "generateName"),
    *("generation", "labels", "managedFields", "ownerReferences", "resourceVersion", "uid"),
}


def api_object(
    kind: str, name: str, namespace: str = "", *, api_version: str = "", **fields: Any
) -> Document:
    """Return an object of the API.

    Args:
        kind: The kind.
        name: The object's name.
        namespace: The object's namespace; empty for none.
        api_version: The version of the API; by default the one that the tests use.
        fields: The fields of the metadata, such as labels, and of the object, such as spec.
    """
    metadata: Document = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    metadata |= {field: value for field, value in fields.items() if field in _METADATA}
    return {
        "apiVersion": api_version or _API_VERSIONS[kind],
        "kind": kind,
        "metadata": metadata,
    } | {field: value for field, value in fields.items() if field not in _METADATA}


# --- nodes, namespaces and quotas -----------------------------------------------------------------


def node(
    name: str,
    allocatable: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> Document:
    """Return a node."""
    fields: Document = {"spec": spec} if spec else {}
    return api_object(
        "Node",
        name,
        labels=dict(labels or {}),
        annotations=dict(annotations or {}),
        **fields,
        status={"allocatable": dict(allocatable or {})},
    )


def namespace(name: str, labels: Mapping[str, str] | None = None) -> Document:
    """Return a namespace."""
    return api_object("Namespace", name, labels=dict(labels or {}))


def resource_quota(
    hard: Mapping[str, str], name: str = "gpus", namespace: str = "team", **spec: Any
) -> Document:
    """Return a ResourceQuota with the hard amounts of its lines."""
    return api_object("ResourceQuota", name, namespace, spec={"hard": dict(hard), **spec})


# --- requests and claims --------------------------------------------------------------------------


def cel(expression: str) -> Document:
    """Return a selector."""
    return {"cel": {"expression": expression}}


def exactly(name: str = "gpu", /, **fields: Any) -> Document:
    """Return a request for devices of one class."""
    return {"name": name, "exactly": {"deviceClassName": NVIDIA, **fields}}


def first(*alternatives: Document, name: str = "gpu") -> Document:
    """Return a request with alternatives."""
    return {"name": name, "firstAvailable": list(alternatives)}


def sub(name: str, **fields: Any) -> Document:
    """Return an alternative of a request."""
    return {"name": name, "deviceClassName": NVIDIA, **fields}


def opaque(parameters: Any, driver: str = NVIDIA) -> Document:
    """Return the parameters for a driver."""
    return {"driver": driver, "parameters": parameters}


def config(parameters: Any, *requests: str, driver: str = NVIDIA) -> Document:
    """Return a configuration of a claim."""
    request_fields = {"requests": list(requests)} if requests else {}
    return {**request_fields, "opaque": opaque(parameters, driver)}


def device_config(**sharing: Any) -> Document:
    """Return the parameters of the driver of this project."""
    return {"apiVersion": OWN_VERSION, "kind": "DeviceConfig", "sharing": sharing}


def gpu_config(**sharing: Any) -> Document:
    """Return the parameters of NVIDIA's driver."""
    return {"apiVersion": NVIDIA_CONFIG, "kind": "GpuConfig", "sharing": sharing}


def claim(
    *requests: Document, name: str = "validated", namespace: str = "", **devices: Any
) -> Document:
    """Return a ResourceClaim; `devices` are further fields of `spec.devices`."""
    spec = {"devices": {"requests": list(requests), **devices}}
    return api_object("ResourceClaim", name, namespace, spec=spec)


def template(
    *requests: Document, name: str = "validated", namespace: str = "", **devices: Any
) -> Document:
    """Return a ResourceClaimTemplate; `devices` are further fields of its claims' `spec.devices`."""
    spec = {"devices": {"requests": list(requests), **devices}}
    return api_object("ResourceClaimTemplate", name, namespace, spec={"spec": spec})


def device_class(*expressions: str, name: str = "validated.example.com", **fields: Any) -> Document:
    """Return a DeviceClass; `fields` are those of the spec."""
    selectors = [cel(expression) for expression in expressions]
    return api_object("DeviceClass", name, spec={"selectors": selectors, **fields})


def class_of_driver(driver: str, name: str = "", **spec: Any) -> Document:
    """Return the DeviceClass of all devices of a driver, by default with the driver's name."""
    return device_class(f'device.driver == "{driver}"', name=name or driver, **spec)


# --- devices --------------------------------------------------------------------------------------


def device(name: str = "gpu-0", **fields: Any) -> Document:
    """Return a device of a slice."""
    return {"name": name, **fields}


def attributes(**values: Any) -> Document:
    """Return the attributes of a device, each of the type of its value."""
    kinds = {str: "string", bool: "bool", int: "int"}
    return {"attributes": {name: {kinds[type(value)]: value} for name, value in values.items()}}


def resource_slice(
    *devices: Document,
    driver: str = EXAMPLE,
    node: str = "node-a",
    name: str = "validated",
    count: int = 1,
    generation: int = 1,
    **spec: Any,
) -> Document:
    """Return a slice of the pool of a node; `count` slices make up the pool.

    Args:
        devices: The devices.
        driver: The driver that publishes the slice.
        node: The node, and the name of the pool.
        name: The slice's name.
        count: The number of slices of the pool.
        generation: The generation of the pool.
        spec: Further fields; a scope other than one node replaces `nodeName`.
    """
    has_scope = {"allNodes", "nodeSelector", "perDeviceNodeSelection"} & set(spec)
    pool = {"name": node, "generation": generation, "resourceSliceCount": count}
    return api_object(
        "ResourceSlice",
        name,
        spec={
            "driver": driver,
            "pool": pool,
            **({} if has_scope else {"nodeName": node}),
            **({"devices": list(devices)} if devices else {}),
            **spec,
        },
    )


# --- objects of this project ----------------------------------------------------------------------


def policy(*rules: Document) -> Document:
    """Return a DeviceCompatibilityPolicy."""
    spec = {"driver": EXAMPLE, "rules": list(rules)}
    return api_object("DeviceCompatibilityPolicy", "validated", spec=spec)


def device_quota(
    *limits: Document, name: str = "validated", labels: Mapping[str, str] | None = None, **spec: Any
) -> Document:
    """Return a DeviceQuota of the namespaces with these labels, by default of all."""
    selector = {} if labels is None else {"matchLabels": dict(labels)}
    return api_object(
        "DeviceQuota", name, spec={"namespaceSelector": selector, "limits": list(limits), **spec}
    )


def limit(most: str = "80Gi", /, name: str = "memory", **fields: Any) -> Document:
    """Return a limit of a DeviceQuota, by default of memory."""
    measure = {} if fields.keys() & {"devices", "claims", "counter"} else {"capacity": "memory"}
    return {"name": name, "driver": EXAMPLE, "max": most, **measure, **fields}


def ownership(*drivers: Document, name: str = "default", **fields: Any) -> Document:
    """Return an AllocatorOwnership; `fields` are those beside the spec, such as status."""
    return api_object("AllocatorOwnership", name, spec={"drivers": list(drivers)}, **fields)


def owned(*pools: Document, name: str = EXAMPLE, **settings: Any) -> Document:
    """Return a driver of an AllocatorOwnership."""
    return {"name": name, **settings, **({"pools": list(pools)} if pools else {})}


def nodes_of(label: str | None, name: str = "", **settings: Any) -> Document:
    """Return a pool of the nodes with a value of label `pool`; of all nodes for None."""
    selector = {} if label is None else {"matchLabels": {"pool": label}}
    return {"name": name or label or "all", "nodeSelector": selector, **settings}
