"""The devices that a pod requests, independent of any driver.

A vocabulary reads a `LegacyPod` and returns a `Translation`: intents and findings. A `LegacyPod`
holds only what vocabularies may read, so it can be made from a live pod and, in another process,
from the translation record alone, with the same result.
"""

from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from findings.field_path import FieldPath
from findings.finding import Finding
from kube.quantity import Quantity
from quotas.resource_quotas.scopes import PodScopes
from translation.model.choices import Choices
from translation.model.keys import Table
from translation.model.required_labels import RequiredLabel

MEBIBYTE = 2**20
SPEC = FieldPath.of("spec")
_NO_KEYS: frozenset[str] = frozenset()
"""The start of a union; `frozenset[str]()` takes longer than the union of most pods."""


class LegacyContainer(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a container that vocabularies read.

    Attributes:
        path: Path in the pod, such as `spec.initContainers[1]`.
        init: True for init containers, including sidecars.
        sidecar: True for init containers with restartPolicy Always.
        limits: Device keys only.
        requests: Device keys only; must equal the limits.
        environment: Device-related variables that are set to plain values.
        original_keys: Renamed key to the key in the pod.
    """

    name: str
    path: FieldPath
    limits: Mapping[str, Quantity]
    requests: Mapping[str, Quantity] = {}
    init: bool = False
    sidecar: bool = False
    privileged: bool = False
    environment: Mapping[str, str] = {}
    original_keys: Mapping[str, str] = {}

    def limit_path(self, key: str) -> FieldPath:
        """Return the path of a limit."""
        return self.path.child("resources", "limits").key(self.original_key(key))

    def original_key(self, key: str) -> str:
        """Return the key as the pod has it; the cluster may have renamed it."""
        return self.original_keys.get(key, key)

    def limit_paths(self, keys: Mapping[str, str]) -> dict[str, FieldPath]:
        """Return aspect to the path of its limit, for the keys that the container has.

        Args:
            keys: Aspect of an intent to the key that requests it.
        """
        limits = self.path.child("resources", "limits")
        return {
            aspect: limits.key(self.original_key(key))
            for aspect, key in keys.items()
            if key in self.limits
        }


def annotation_path(key: str) -> FieldPath:
    """Return the path of an annotation of a pod."""
    return FieldPath.of("metadata", "annotations").key(key)


class LegacyPod(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a pod that a translation reads: two equal values are translated equally.

    Attributes:
        containers: All containers, init containers first.
        annotations: The annotations that vocabularies or preflight checks read; likewise labels and
            node_selector.
        affinity_terms: The terms of the required node affinity, with the requirements on such labels.
        scopes: The quota scopes that match the pod.
        choices: The operator's; those that make no difference to the pod have their defaults.
        recorded_drivers: Vocabulary name to the driver of the pod's translation record, which stays
            its driver as long as it is a candidate.
        is_scheduled: True if a scheduler has bound the pod, as a pod read from a cluster shows.
    """

    containers: tuple[LegacyContainer, ...]
    annotations: Mapping[str, str] = {}
    labels: Mapping[str, str] = {}
    node_selector: Mapping[str, str] = {}
    affinity_terms: tuple[tuple[RequiredLabel, ...], ...] = ()
    node_name: str = ""
    scheduler_name: str = ""
    scopes: PodScopes = PodScopes()
    choices: Choices = Choices()
    recorded_drivers: Mapping[str, str] = {}
    is_scheduled: bool = False

    @property
    def requests_devices(self) -> bool:
        """Return True if any container has a device key."""
        return any(container.limits or container.requests for container in self.containers)

    def keys(self) -> frozenset[str]:
        """Return the device keys in the limits of all containers."""
        return _NO_KEYS.union(*[container.limits for container in self.containers])


class DeviceKind(StrEnum):
    """A kind of device; a profile maps it to a DeviceClass of its driver."""

    GPU = "gpu"
    MIG = "mig"
    NIC = "nic"
    FPGA = "fpga"
    NPU = "npu"
    HCU = "hcu"
    DEVICE = "device"
    """A device of any vendor; the resource name determines the vendor."""


class Scope(StrEnum):
    """A part of a node's topology that contains several devices."""

    NUMA_NODE = "numaNode"
    PCIE_ROOT = "pcieRoot"


class LabelRequirement(msgspec.Struct, frozen=True, kw_only=True):
    """A requirement on a label of devices; profiles map the label to an attribute.

    Attributes:
        values: The values that meet it; None for any.
        negated: The devices that do not meet it are selected, also those without the label.
    """

    key: str
    values: tuple[str, ...] | None = None
    negated: bool = False


class DeviceFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of devices. Models match as case-insensitive substrings, UUIDs exactly.

    Attributes:
        models: Models to select; None for any. Likewise `uuids`.
        model_name: The whole product name of the model, as devices publish it; None for any.
        not_models: Models to exclude. Likewise `not_uuids`.
        resource: The legacy resource name; the profile says which devices it means.
        interface: The name of a network interface of the node.
        labels: Requirements on labels of devices, all of which must hold.
        virtual_function: Virtual functions only.
    """

    models: tuple[str, ...] | None = None
    model_name: str | None = None
    not_models: tuple[str, ...] = ()
    uuids: tuple[str, ...] | None = None
    not_uuids: tuple[str, ...] = ()
    mig_profile: str | None = None
    resource: str | None = None
    interface: str | None = None
    labels: tuple[LabelRequirement, ...] = ()
    virtual_function: bool = False


class NetworkAttachment(msgspec.Struct, frozen=True, kw_only=True):
    """A NetworkAttachmentDefinition that a NIC is attached by.

    Attributes:
        namespace: The definition's namespace; empty for the pod's.
        interface: Its name in the pod; empty for the driver's choice.
        config: Its CNI configuration, for drivers that run CNI plugins themselves.
    """

    name: str
    namespace: str = ""
    interface: str = ""
    config: Mapping[str, Any] = {}


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """The devices of one kind that one container requests; amounts are per device.

    Attributes:
        count: Number of distinct devices, at least 1.
        memory: Bytes; None for all memory, or where `memory_percent` is set.
        memory_percent: 1 to 99 percent of each device's memory, of a MIG device 1 to 100 of its GPU's; None for
            all memory, or where `memory` is set.
        nominal_memory: A MIG device counts with the memory in its profile's name, if it has less.
        cores_percent: Percent of each device's compute; of a NIC or FPGA, percent of the device. 0
            is uncapped. None requests no share.
        exclusive: No other consumer may use the device.
        bandwidth: Bits per second of each NIC that are reserved; None where nothing requests any.
        tflops: Compute of each device that is reserved; None where nothing requests any.
        replica: One time-sliced or MPS replica, of unspecified size.
        through_mps: The device is shared through an MPS server.
        same_numa: All devices of the container are on one NUMA node.
        within: The topology scope that must contain all of the devices.
        partition: The devices must be exactly one partition of those that the driver publishes.
        every: All matching devices of a node; `count` is 1 then.
        pool: A share of all matching devices of a node; one device where they cannot be shared.
        network: The network that the driver attaches the NICs to; None where nothing says it.
        also: Further containers that use the same devices.
        card_group: The number of a group of intents of one container, of different amounts. Together
            their devices are related as those of one intent. None outside any.
        paths: Aspect (a field of the filter, "count", "memory", "cores", "mode", "numa", "scope",
            "partition")
            to the path of the key that requested it; "amount" to that of the key for MiB of memory, where
            a percentage is none.
    """

    container: str
    kind: DeviceKind
    count: int
    exclusive: bool = False
    memory: Quantity | None = None
    memory_percent: int | None = None
    nominal_memory: bool = False
    cores_percent: int | None = None
    bandwidth: Quantity | None = None
    tflops: Quantity | None = None
    replica: bool = False
    through_mps: bool = False
    same_numa: bool = False
    within: Scope | None = None
    partition: bool = False
    every: bool = False
    pool: bool = False
    network: NetworkAttachment | None = None
    also: tuple[str, ...] = ()
    card_group: int | None = None
    filter: DeviceFilter = DeviceFilter()
    paths: Mapping[str, FieldPath] = {}

    @property
    def takes_all_memory(self) -> bool:
        """Return True if the intent requests all memory of each device."""
        return self.memory is None and self.memory_percent is None and not self.replica

    @property
    def takes_part_of_cores(self) -> bool:
        """Return True if the intent requests a percentage of each device's compute below all of it."""
        return self.cores_percent is not None and 0 < self.cores_percent < 100

    def path(self, aspect: str) -> FieldPath:
        """Return the path of the key that requested an aspect; of the count's by default."""
        return self.paths.get(aspect) or self.paths.get("count") or SPEC


class Alignment(msgspec.Struct, frozen=True, kw_only=True):
    """Devices of several kinds to allocate in groups, each under one PCIe root.

    Attributes:
        kinds: The kinds of the intents to align, at least two. The devices of the first kind are
            divided into groups, and the devices of the others are added to them.
        required: Every group has devices of every kind and must be aligned. Otherwise alignment is
            preferred.
        path: The path of the key that requested it.
    """

    kinds: tuple[DeviceKind, ...]
    required: bool
    path: FieldPath


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """An environment variable to set in a container."""

    container: str
    name: str
    value: str
    path: FieldPath


class Translation(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a vocabulary's translation of a pod.

    Attributes:
        intents: The intents in the order of the pod's containers.
        variables: The variables to add where the container does not set them itself.
        alignment: The intents to allocate together; None without any.
        findings: Errors reject the pod.
    """

    intents: tuple[Intent, ...] = ()
    variables: tuple[Variable, ...] = ()
    alignment: Alignment | None = None
    findings: tuple[Finding, ...] = ()


class Vocabulary(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of one legacy system, and their translation to intents.

    Attributes:
        name: The module's name, as in `--profile NAME=...` and in the translation record.
        table: Every name that it handles or mentions, with its outcome.
        keys: Resource names that it handles.
        key_prefixes: Prefixes of further resource names that it handles.
        ceded: Names of these prefixes that another vocabulary, or a device plugin, has instead; one that ends in `*` is a
            prefix.
        foreign: Keys of other systems that it reads beside its own, to reject them.
        takes_names: Profiles may add resource names.
        companion_suffix: Suffix of names that are read only beside the name without it.
        annotations: Pod annotations that its translation depends on.
        recorded_annotations: Further annotations that its translation depends on, which only records have:
            they are computed of objects of the cluster, and read from no pod.
        requesting: Pod annotations that request devices without any key, in pods of its schedulers.
        schedulers: Names of the schedulers that read these annotations; none where they have an
            effect whatever the scheduler.
        requesting_label: Name and value of the label without which they have no effect, whatever the
            scheduler; None where schedulers decide.
        triggers: Pod annotations for which other webhooks add its keys, possibly after ours.
        labels: Pod labels that its findings depend on; its intents never do.
        variables: Environment variables that it may add.
        whole_pod: Every container gets its devices, so containers without keys are recorded, too.
        renamed_keys: Name in pods to the name in the table, of keys that the cluster renamed.
        added_key: The key that the legacy system adds to a container which requests devices
            without it, and which quotas therefore counted.
        translate: Translates a pod whose limits hold only this vocabulary's keys. Never raises,
            whatever the pod contains.
    """

    name: str
    table: Table = ()
    keys: tuple[str, ...]
    key_prefixes: tuple[str, ...] = ()
    ceded: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    takes_names: bool = False
    companion_suffix: str | None = None
    annotations: tuple[str, ...] = ()
    recorded_annotations: tuple[str, ...] = ()
    requesting: tuple[str, ...] = ()
    schedulers: tuple[str, ...] = ()
    requesting_label: tuple[str, str] | None = None
    triggers: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    whole_pod: bool = False
    renamed_keys: Mapping[str, str] = {}
    added_key: str | None = None
    translate: Callable[[LegacyPod], Translation]

    def handles(self, key: str) -> bool:
        """Return True if the resource name is one of this vocabulary's."""
        return (key in self.keys or key.startswith(self.key_prefixes)) and not self._cedes(key)

    def _cedes(self, key: str) -> bool:
        return bool(self.ceded) and any(
            key.startswith(name.removesuffix("*")) if name.endswith("*") else key == name
            for name in self.ceded
        )

    def is_requested(self, pod: LegacyPod) -> bool:
        """Return True if annotations of a pod request devices of this vocabulary.

        A pod with a translation record was of one of its schedulers before.
        """
        # Most vocabularies have no such annotation, and every pod asks all of them.
        return (
            bool(self.requesting)
            and not pod.annotations.keys().isdisjoint(self.requesting)
            and (self._reads(pod) or self.name in pod.recorded_drivers)
        )

    def _reads(self, pod: LegacyPod) -> bool:
        if self.requesting_label is None:
            return not self.schedulers or pod.scheduler_name in self.schedulers
        name, value = self.requesting_label
        return pod.labels.get(name) == value

    def reads(self, key: str, names: Collection[str]) -> bool:
        """Return True if a resource name of one container, among others, is this vocabulary's."""
        suffix = self.companion_suffix
        return self.handles(key) and (
            suffix is None or not key.endswith(suffix) or key.removesuffix(suffix) in names
        )
