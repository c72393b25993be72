"""Findings about an object: severity, code, path, message and fix.

A finding is a value. The command line prints it; the webhook turns errors into the causes of a 422
and warnings into admission warnings. Codes are part of the interface: scripts match on them.
"""

from collections.abc import Callable, Iterable
from enum import StrEnum

import msgspec

from findings.field_path import FieldPath
from findings.fitting import (
    Correction,
    DroppedRequest,
    FittingAmounts,
    Renaming,
    Replacement,
    Rewrite,
    WiderChoices,
)
from kube.quantity import Quantity


class Severity(StrEnum):
    """The effect of a finding on the object."""

    ERROR = "error"
    """The object is rejected."""
    WARNING = "warning"
    """The object is accepted, but part of it is lost, changed or unlikely to work."""
    INFO = "info"
    """The object is accepted; the finding is a remark."""


class Code(StrEnum):
    """The cause of a finding; the text under each code describes it."""

    # Values that a device plugin or the API server would reject, too.
    INVALID_QUANTITY = "invalidQuantity"
    """The amount is not a Kubernetes quantity."""
    NOT_AN_INTEGER = "notAnInteger"
    """The amount has a fraction, and the resource is counted in whole units."""
    NEGATIVE = "negative"
    """The amount is below zero."""
    OUT_OF_RANGE = "outOfRange"
    """The amount is outside what the key allows, such as a percentage above 100."""
    WRONG_UNIT = "wrongUnit"
    """The amount is written in bytes where the key counts MiB."""
    LIMIT_REQUIRED = "limitRequired"
    """An extended resource, such as a device key, is in requests but not in limits."""
    LIMIT_DIFFERS = "limitDiffers"
    """An extended resource, such as a device key, has different amounts in requests and limits."""
    UNKNOWN_MIG_PROFILE = "unknownMigProfile"
    """The text after mig- is not the name of a MIG profile."""
    UNKNOWN_MODE = "unknownMode"
    """The vgpu-mode annotation names an unknown mode."""
    INVALID_COMBINATION = "invalidCombination"
    """The legacy scheduler does not accept these keys together."""
    MALFORMED_ANNOTATION = "malformedAnnotation"
    """An annotation is not valid JSON of its schema, or names something that does not exist."""
    EMPTY_DEVICE_LIST = "emptyDeviceList"
    """A list of card types or UUIDs contains only separators, so no device would match."""
    TOO_LONG = "tooLong"
    """A text is longer than a CEL selector may be."""
    TOO_LARGE = "tooLarge"
    """The pod requests devices and exceeds a limit on its size."""
    INVALID_OBJECT = "invalidObject"
    """A field of the object has the wrong type."""

    # Requests that the target driver cannot express.
    CANNOT_EXPRESS = "cannotExpress"
    """The driver of the profile cannot express this key."""
    UNSUPPORTED_AS_PUBLISHED = "unsupportedAsPublished"
    """The driver could serve this if it published other devices or other attributes."""
    MEMORY_AMOUNT_REQUIRED = "memoryAmountRequired"
    """The memory must be an amount in vgpu-mode mig or mps, since a percentage has no known size."""
    MEMORY_SIZES_UNKNOWN = "memorySizesUnknown"
    """A percentage of memory needs the published sizes of the devices, which are unknown."""
    TOO_MANY_DEVICES = "tooManyDevices"
    """A claim has at most 32 devices."""
    TOO_MANY_REQUESTS = "tooManyRequests"
    """A claim has at most 32 requests."""
    AMBIGUOUS_OWNER = "ambiguousOwner"
    """The keys do not say which of two legacy systems provides the devices of the pod."""
    PRIVILEGED_SHARE = "privilegedShare"
    """A privileged container sees every device of its node, so a share is not enforced."""

    # The cluster and namespace of the object.
    SHARES_NOT_SUPPORTED = "sharesNotSupported"
    """The cluster has the feature gate DRAConsumableCapacity off, so a claim gets whole devices only."""
    QUOTA_NOT_COUNTED = "quotaNotCounted"
    """A ResourceQuota counts a key that the translation removes, or another key of the driver of a class that
    the pod requests by its implicit name."""
    DUPLICATE_RESOURCE = "duplicateResource"
    """A device plugin and ResourceSlices offer the same extended resource on one node."""
    EXCEEDS_QUOTA = "exceedsQuota"
    """A ResourceQuota has less left of a device class or an extended resource than is requested."""
    CLAIMS_NOT_SEEN = "claimsNotSeen"
    """A quota, LimitRange or admission policy names a device key, and so does not see translated pods."""
    TEMPLATE_NOT_COUNTED = "templateNotCounted"
    """A ResourceQuota counts a device key, and a ResourceClaimTemplate of its namespace gives every pod that
    names it devices of the same driver, which the quota does not count."""
    LIMIT_RANGE_CONFLICT = "limitRangeConflict"
    """A LimitRange bounds a key that the translation removes, and Kubernetes rejects pods without it."""
    TEMPLATE_CONFLICT = "templateConflict"
    """A ResourceClaimTemplate of the generated name exists with other content."""
    DEVICE_CLASS_MISSING = "deviceClassMissing"
    """The cluster has DeviceClasses, but none of the name that the claim uses."""
    SCHEDULER_REPLACED = "schedulerReplaced"
    """The namespace opted in, so a scheduler that is not known to support claims is replaced."""
    FOREIGN_SCHEDULER = "foreignScheduler"
    """The pod names a scheduler that is not known to support claims: keys are not translated, and claims may wait."""
    CLAIM_UNAWARE_COMPONENT = "claimUnawareComponent"
    """A queue, an autoscaler or another component may ignore the claims of the pod."""
    NO_SCALE_FROM_ZERO = "noScaleFromZero"
    """An autoscaler adds no node for the claims to a node group that has none."""
    NO_PROVISIONED_CAPACITY = "noProvisionedCapacity"
    """A ProvisioningRequest names a PodTemplate with claims from templates, and Cluster Autoscaler finds no capacity
    for them."""
    MIXED_DRIVER_OWNERSHIP = "mixedDriverOwnership"
    """No scheduler can allocate all devices: some are of drivers that the bridge allocates, others not."""
    DRIVER_OWNERSHIP_UNKNOWN = "driverOwnershipUnknown"
    """The driver of a class, or of a claim to come, is not known, so the pod may have the wrong scheduler."""
    DRIVER_OWNED_BY_BRIDGE = "driverOwnedByBridge"
    """The pod names a scheduler that cannot allocate a driver that the bridge owns; the webhook as installed is
    not asked about pods that name one."""
    DRIVER_NOT_OWNED = "driverNotOwned"
    """The pod names the scheduler of the bridge, which does not own its driver."""
    NODE_NAME_SET = "nodeNameSet"
    """The pod names its node, or a scheduler has bound it already; not translated."""

    # Groups of pods.
    INVALID_GROUP = "invalidGroup"
    """A pod or PodGroup declares a group with a name, a number of pods or policies that cannot be one."""
    GROUP_MINIMUM_DIFFERS = "groupMinimumDiffers"
    """Pods of one group, or they and its PodGroup, disagree on the number of pods that it needs."""
    GROUP_NOT_FOUND = "groupNotFound"
    """A pod names a PodGroup that does not exist, and its scheduler waits for it."""
    GROUP_TOO_SMALL = "groupTooSmall"
    """A group needs more pods than the manifests and the cluster have."""
    GROUP_TOO_LARGE = "groupTooLarge"
    """A group has more pods without a node than are decided together."""
    COMPOSITE_GROUP = "compositeGroup"
    """A PodGroup is a part of a composite group, which the bridge rejects."""
    GROUP_SCHEDULER_UNKNOWN = "groupSchedulerUnknown"
    """Nothing tells which scheduler the pods of a PodGroup get, and all of them need the same one."""
    GROUP_SCHEDULER_DIFFERS = "groupSchedulerDiffers"
    """A pod goes to another scheduler than the other pods of its PodGroup."""
    GROUP_PRIORITY_DIFFERS = "groupPriorityDiffers"
    """A pod has another priority or preemption policy than its PodGroup, or another pod of it."""
    GROUP_CLAIM_DIFFERS = "groupClaimDiffers"
    """A claim of a pod resembles one of its PodGroup, and is another one."""
    GANG_NOT_ADOPTED = "gangNotAdopted"
    """The bridge places a pod by itself that another scheduler would place with its gang."""

    # The annotation of a translated pod.
    TRANSLATION_RECORD_MALFORMED = "translationRecordMalformed"
    """The request annotation is not one that the webhook writes."""
    TRANSLATION_RECORD_FORGED = "translationRecordForged"
    """The pod's claims do not derive from its request annotation."""
    TRANSLATION_RECORD_CHANGED = "translationRecordChanged"
    """The request annotation, or a recorded amount, was changed after the pod was created."""
    TRANSLATION_NOT_SIGNED = "translationNotSigned"
    """The pod carries a request annotation, and its keys would not be translated here: the webhook does
    not sign it, so no template is created for it."""
    PROFILE_CHANGED = "profileChanged"
    """The request annotation was made with another profile, or with a version of it that is not kept."""

    # DeviceTranslationProfiles.
    INVALID_PROFILE = "invalidProfile"
    """The object is not a driver profile, or a profile that cannot be in force."""
    PROFILE_TOO_LARGE = "profileTooLarge"
    """The profile is larger, or has more resource names, than is kept."""
    PROFILE_KEY_NOT_SERVED = "profileKeyNotServed"
    """A resource name of the profile is served by another driver, or by none."""
    SHIPPED_PROFILE_REPLACED = "shippedProfileReplaced"
    """The profile replaces the shipped one of its driver as a whole."""

    # Accepted with a loss.
    CLAMPED = "clamped"
    """The amount was lowered to the largest meaningful one."""
    AMOUNT_ROUNDED_UP = "amountRoundedUp"
    """The share gets more than was requested: devices divide memory in steps, and some need cores."""
    ALLOCATION_IGNORED = "allocationIgnored"
    """An annotation assigns devices by number, as in a restored pod; the scheduler allocates anew."""
    GPUS_IN_PARTS = "gpusInParts"
    """Pods have a part of a GPU each by time slicing, MPS or MIG, and a DRA driver would give each a whole one, or none."""
    HOST_NETWORK_NIC = "hostNetworkNic"
    """A pod in the host's network requests a NIC, which its driver could not move into the pod."""
    KEPT_BESIDE_CLAIMS = "keptBesideClaims"
    """A key stays with its device plugin beside claims, and nothing aligns the devices of both."""
    NETWORK_BY_CLAIM = "networkByClaim"
    """The claim names the network of a virtual function, which the driver attaches itself."""
    CONTROLLER_READS_KEYS = "controllerReadsKeys"
    """The controller of a workload reads the keys of its pod template, which the translation removes."""
    CLASS_CONFIG_MISSING = "classConfigMissing"
    """The driver needs a configuration that a translation cannot write, and the class has none."""
    NO_PARTITION_OF_SIZE = "noPartitionOfSize"
    """The driver divides the GPUs of a node into partitions, and none has as many GPUs."""
    POLICY_DROPPED = "policyDropped"
    """A claim cannot express this placement policy of another scheduler."""
    NOT_PUBLISHED_BY_DRIVER = "notPublishedByDriver"
    """The driver publishes no attribute or capacity for this request."""
    WHOLE_DEVICE = "wholeDevice"
    """A share was requested, and a whole device will be allocated."""
    ONE_OF_POOL = "oneOfPool"
    """A share of a pool of NICs becomes one of them, which leaves the host."""
    MULTUS_BESIDE_POOL = "multusBesidePool"
    """Multus attaches networks of the host to the pod, and a claim would move a NIC out of it; the pool's key
    stays with its device plugin."""
    LIMITS_ENFORCED = "limitsEnforced"
    """The driver limits what the legacy system only reserves."""
    TOLERATION_MISSING = "tolerationMissing"
    """Nodes may have a taint of a removed key, and without the key nothing adds a toleration of it."""
    UNCAPPED_CORES = "uncappedCores"
    """A share without cores may be placed on a device whose cores are all reserved."""
    EQUAL_MEMORY_SIZES = "equalMemorySizes"
    """All devices of a request must have one memory size; the legacy system mixes sizes."""
    EQUAL_COMPUTE_UNITS = "equalComputeUnits"
    """All devices of a request must have one number of compute units; the legacy system mixes numbers."""
    MEMORY_SIZES_MERGED = "memorySizesMerged"
    """Devices of near memory sizes get the share of the smallest of them."""
    NOMINAL_MEMORY = "nominalMemory"
    """A MIG device has less memory than is requested, and is enough by the name of its profile, as in Volcano."""
    NOT_EXCLUSIVE = "notExclusive"
    """The pod requests an exclusive device, but other pods may still share it."""
    BANDWIDTH_NOT_RESERVED = "bandwidthNotReserved"
    """A network of the pod has a bandwidth, which limits its traffic and is reserved nowhere."""
    DUPLICATE_CLAIM = "duplicateClaim"
    """The pod has its own claim for the driver that also serves its legacy keys."""
    SHARED_WITHIN_POD_ONLY = "sharedWithinPodOnly"
    """The device is shared within this pod, not with other pods."""
    MIXED_HARDWARE = "mixedHardware"
    """Nodes differ in how many devices share a PCIe root, and groups fit only some of them."""
    SMALLEST_DEVICE_NOT_PREFERRED = "smallestDeviceNotPreferred"
    """The smallest sufficient MIG device is not preferred, because the sizes are unknown."""
    INIT_RAISES_LIMIT = "initRaisesLimit"
    """An app container gets the larger amounts of an init container with which it shares devices."""
    INIT_SHARES_DEVICE = "initSharesDevice"
    """An init container uses the devices of an app container and sees more than it requested."""
    HELD_FOR_POD_LIFETIME = "heldForPodLifetime"
    """Devices of an init container stay allocated for the lifetime of the pod."""
    SIDECAR_ADDED = "sidecarAdded"
    """The pod holds a sidecar's devices beside those of its app containers; HAMi holds the larger."""
    GRANTED_WHERE_REJECTED = "grantedWhereRejected"
    """The legacy scheduler rejects this mixture of keys; the claims grant what each of them means."""
    NO_DEVICE_REQUESTED = "noDeviceRequested"
    """Companion keys have no effect without a device count above zero."""
    DEVICES_EXPOSED_BY_ENV = "devicesExposedByEnv"
    """An environment variable may expose devices beyond the claim."""
    OWNED_DEVICES_EXPOSED = "ownedDevicesExposed"
    """A container with a claim of a driver that the bridge owns may see other devices by an environment
    variable of its own."""
    NOT_INJECTED = "notInjected"
    """A variable or label requests an injection by a node agent that a claim does not provide."""
    ENV_VAR_NOT_PROVIDED = "envVarNotProvided"
    """The device plugin sets a variable with the devices of the container; a claim does not."""
    EXISTING_VALUE_KEPT = "existingValueKept"
    """The pod already sets a variable that the translation would add; its value stays."""
    GPU_SHARING_NODE_LABEL = "gpuSharingNodeLabel"
    """The node selector requires a label of nodes whose device plugin shares GPUs."""

    # Accepted; remarks.
    PASSED_THROUGH = "passedThrough"
    """A DeviceClass maps the keys, so Kubernetes allocates natively; nothing was changed."""
    NOT_OPTED_IN = "notOptedIn"
    """The pod's namespace is not labelled, and mode OptIn translates only pods of labelled ones."""
    SHADOW_MODE = "shadowMode"
    """Nothing is changed or rejected in mode Shadow; the finding reports the answer of another mode."""
    OPTED_OUT = "optedOut"
    """A label of the pod or of its namespace disables translation."""
    ALREADY_CONVERTED = "alreadyConverted"
    """Another webhook created the claims of this pod."""
    GPU_DISCOVERY_NODE_LABEL = "gpuDiscoveryNodeLabel"
    """The node selector uses labels of GPU feature discovery, which has to keep running."""
    UNTRANSLATED_DEVICE_KEY = "untranslatedDeviceKey"
    """A device key belongs to a system whose keys are not translated."""
    POD_TEMPLATE_NOT_READ = "podTemplateNotRead"
    """A pod template with device keys stays as it is, in an object of a kind that is not read; its pods are translated."""

    # Validation of DRA objects and of pods with claims; rules/ has the fixes.
    UNSERVED_VERSION = "unservedVersion"
    """Kubernetes 1.37 serves this version of resource.k8s.io only with --runtime-config."""
    REMOVED_FIELD = "removedField"
    """The field is from an older version of resource.k8s.io, and this version drops it."""
    UNKNOWN_FIELD = "unknownField"
    """Kubernetes 1.37 has no such field, and drops it or rejects the object."""
    FEATURE_GATE_OFF = "featureGateOff"
    """The API server drops the field, since the feature gate of the field is off."""
    INVALID_REQUEST = "invalidRequest"
    """A request sets neither or both of `exactly` and `firstAvailable`, or names no class."""
    INVALID_LIST = "invalidList"
    """A list of a claim or class has too many entries, or a configuration without parameters."""
    DUPLICATE_NAME = "duplicateName"
    """A name is used twice in a list of unique names."""
    INVALID_COUNT = "invalidCount"
    """The allocation mode is unknown, or does not allow the count."""
    UNKNOWN_REQUEST = "unknownRequest"
    """A constraint, a configuration or a container names a request that the claim does not have."""
    INVALID_CONSTRAINT = "invalidConstraint"
    """A constraint names no attribute, or an attribute without a domain."""
    CONFLICTING_CONSTRAINT_ATTRIBUTES = "conflictingConstraintAttributes"
    """A constraint has `matchAttribute` and `distinctAttribute`, and the scheduler ignores the latter."""
    SINGLE_DEVICE_CONSTRAINT = "singleDeviceConstraint"
    """A constraint applies to a single device, so it compares nothing."""
    INVALID_TOLERATION = "invalidToleration"
    """A toleration has an unknown operator or effect, or a value that is not allowed."""
    KEYLESS_TOLERATION = "keylessToleration"
    """A toleration of operator Equal without a key tolerates only taints of its value."""
    TOO_MANY_TOLERATIONS = "tooManyTolerations"
    """A request has at most 16 tolerations; the API server does not check it."""
    NOOP_TOLERATION = "noopToleration"
    """A toleration of effect None has no effect, since such taints keep no pod away."""
    NEGATIVE_CAPACITY = "negativeCapacity"
    """An amount below zero ends the attempt on all nodes, unless a device's range raises it."""
    MALFORMED_QUALIFIED_NAME = "malformedQualifiedName"
    """The name of an attribute or capacity has several slashes, so no selector can refer to it."""
    ADMIN_ACCESS_NOT_ALLOWED = "adminAccessNotAllowed"
    """The namespace is not labelled for administrative access."""
    INVALID_SELECTOR = "invalidSelector"
    """A CEL expression does not compile, does not return a boolean, or errors on every device."""
    PARTIALLY_EVALUATED = "partiallyEvaluated"
    """The object has more expressions than are evaluated; the others were not checked."""
    UNKNOWN_ATTRIBUTE_MEMBER = "unknownAttributeMember"
    """An expression reads `.string` or a similar member of an attribute, which always fails."""
    RETIRED_ATTRIBUTE = "retiredAttribute"
    """An expression reads an attribute that its driver no longer publishes."""
    UNGUARDED_SELECTOR = "unguardedSelector"
    """The class selector errors on other drivers' devices, so nodes with such devices cannot be used."""
    SELECTS_EVERYTHING = "selectsEverything"
    """A class without selectors contains every device of every driver."""
    INVALID_CONFIG = "invalidConfig"
    """The driver would reject these opaque parameters when the pod starts."""
    CONFIG_MISMATCH = "configMismatch"
    """The parameters are for another type of device than the request selects."""
    CONFIG_NOT_APPLIED = "configNotApplied"
    """The driver ignores the parameters, since results are named by alternative."""
    REQUIRES_FEATURE_GATE = "requiresFeatureGate"
    """The driver accepts these parameters only with one of its own feature gates, off by default."""
    CONFLICTING_SHARING = "conflictingSharing"
    """The driver shares these devices by consumable capacity, and rejects MPS with it."""
    INVALID_EXTENDED_RESOURCE = "invalidExtendedResource"
    """No container could request an extended resource of this name."""
    MAPPING_TOO_WIDE = "mappingTooWide"
    """The DeviceClass that maps a resource name gives other devices than the name means, too."""
    DUPLICATE_EXTENDED_RESOURCE = "duplicateExtendedResource"
    """Two classes map one extended resource, and the newest class serves its pods."""
    UNKNOWN_STRATEGY = "unknownStrategy"
    """The annotation `drawbridge.internal/strategy` names no strategy, so the default is used."""
    STRATEGY_ALLOCATES_LESS = "strategyAllocatesLess"
    """The strategy spreads shares over devices, and fewer are allocated than with kube-scheduler's own scores."""
    INVALID_SLICE = "invalidSlice"
    """A slice exceeds a limit, lacks a required field, or sets mutually exclusive fields."""
    INVALID_NAME = "invalidName"
    """A name does not have the format that the API server requires."""
    MULTIPLE_NODE_SELECTOR_TERMS = "multipleNodeSelectorTerms"
    """The node selector of a device has several terms, and allocating the device fails."""
    FAILING_NODE_SELECTOR = "failingNodeSelector"
    """The scheduler fails at a node selector that the API server accepts, and so does every attempt."""
    INVALID_REQUEST_POLICY = "invalidRequestPolicy"
    """The API server rejects the request policy of a capacity."""
    UNSATISFIABLE_REQUEST_POLICY = "unsatisfiableRequestPolicy"
    """A request policy has a negative amount, or a default above the capacity, so some requests fail."""
    SLICE_COUNT_MISMATCH = "sliceCountMismatch"
    """Slices of one pool and generation differ in resourceSliceCount, so it is never complete."""
    DUPLICATE_DEVICE = "duplicateDevice"
    """Two slices of a pool have a device of one name, so no device of the pool is used."""
    UNKNOWN_COUNTER_SET = "unknownCounterSet"
    """A device consumes a counter that its pool does not have, so no device of the pool is used."""
    INVALID_COMPATIBILITY_GROUPS = "invalidCompatibilityGroups"
    """A rule of a policy names too many groups, or a group twice."""
    EMPTY_RULE = "emptyRule"
    """A rule of a policy has neither groups nor an expression."""
    ASYMMETRIC_RULE = "asymmetricRule"
    """One rule of a policy accepts devices of another rule, which accepts none of its devices."""
    NEVER_TRUE_RULE = "neverTrueRule"
    """A rule of a policy selects no device, or accepts none, whatever their attributes."""
    UNKNOWN_ATTRIBUTE = "unknownAttribute"
    """A rule of a policy reads an attribute that is likely to be a misspelling of another."""
    UNKNOWN_LITERAL = "unknownLiteral"
    """A rule of a policy accepts a text that is likely to be a misspelling of one that rules select."""
    POLICY_NOT_ENFORCED = "policyNotEnforced"
    """No scheduler of the cluster enforces the policy."""
    DUPLICATE_POLICY_FOR_DRIVER = "duplicatePolicyForDriver"
    """An older policy is for the same driver, so this one has no effect."""
    INVALID_DEVICE_QUOTA = "invalidDeviceQuota"
    """A limit of a DeviceQuota has not exactly one measure, or a number outside its range."""
    LIMIT_COUNTS_NOTHING = "limitCountsNothing"
    """No published device has what a limit of a DeviceQuota counts."""
    LIMIT_BELOW_LEAST = "limitBelowLeast"
    """A limit of a DeviceQuota is below the least that any device gives, such as a number of MiB for bytes."""
    CAP_ABOVE_MAX = "capAboveMax"
    """A cap of a DeviceQuota is above the amount that it is a part of, so that it never applies."""
    DUPLICATE_LIMIT = "duplicateLimit"
    """Two limits of a DeviceQuota count the same, so that only the smaller of them matters."""
    SELECTS_NO_NAMESPACE = "selectsNoNamespace"
    """The namespaceSelector of a DeviceQuota selects no namespace."""
    INVALID_ALLOCATOR_OWNERSHIP = "invalidAllocatorOwnership"
    """Settings of an owned driver have a number outside its range or an invalid selector of nodes."""
    SHADOWED_POOL = "shadowedPool"
    """An earlier pool of an owned driver selects all nodes of a pool, so that this one has none."""
    SELECTS_NO_NODE = "selectsNoNode"
    """The nodeSelector of a pool of an owned driver selects no node."""
    EXCEEDS_PER_REQUEST_QUOTA = "exceedsPerRequestQuota"
    """A request has more than a DeviceQuota allows for one, whatever devices it gets."""
    EXCEEDS_DEVICE_QUOTA = "exceedsDeviceQuota"
    """Claims have more than a DeviceQuota allows, even if nothing else is in use."""
    DEVICE_QUOTA_FULL = "deviceQuotaFull"
    """A DeviceQuota allows the claims, but less is left of it than they need."""
    INVALID_CLAIM_SOURCE = "invalidClaimSource"
    """A claim of a pod names neither or both of a ResourceClaim and a ResourceClaimTemplate."""
    UNKNOWN_CLAIM = "unknownClaim"
    """A container uses a claim that the pod does not have."""
    CLAIM_MISSING = "claimMissing"
    """The cluster has no claim or template of the name that the pod uses."""
    NO_DEVICES = "noDevices"
    """No published device is of the class."""
    SELECTOR_MATCHES_NOTHING = "selectorMatchesNothing"
    """No published device satisfies the selectors."""
    SELECTOR_FAILS = "selectorFails"
    """A selector errors on a published device, so nodes with such a device cannot be used."""
    CAPACITY_NOT_PUBLISHED = "capacityNotPublished"
    """No selected device has a capacity of this name."""
    EXCEEDS_LARGEST_DEVICE = "exceedsLargestDevice"
    """An amount exceeds the capacity of every selected device, even without allocations."""
    OUTSIDE_REQUEST_POLICY = "outsideRequestPolicy"
    """An amount, rounded up by the request policies, exceeds their maximum or the capacity."""
    EXCEEDS_NODE_RESOURCES = "exceedsNodeResources"
    """A pod requests more CPU, memory, storage or huge pages than any node with its devices has."""
    EXCEEDS_LARGEST_NODE = "exceedsLargestNode"
    """A count exceeds the selected devices of every node, even without allocations."""
    UNSATISFIABLE_CONSTRAINT = "unsatisfiableConstraint"
    """No node can satisfy the constraints, even without allocations."""
    INCOMPATIBLE_MODES = "incompatibleModes"
    """No node has devices for all requests whose modes, groups or policies are compatible."""
    JOINTLY_INFEASIBLE = "jointlyInfeasible"
    """Each request is feasible alone, but no node can satisfy all of them together."""
    NO_USABLE_DEVICE = "noUsableDevice"
    """Selected devices exist, but none of them can be used."""
    NOT_EVALUATED = "notEvaluated"
    """Feasibility was not evaluated within the budget, so the object was accepted."""
    DOES_NOT_FIT_NOW = "doesNotFitNow"
    """Feasible, but not beside the present allocations and taints: the pod has to wait."""
    CONFLICTING_SHARING_CONFIG = "conflictingSharingConfig"
    """Claims that may use one shared device have contradicting configurations; its driver rejects the second."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A fault, a loss or a remark about one object.

    Attributes:
        path: The place in the object.
        detail: The fault, without its place.
        fix: The correction; empty where the message contains it or nothing needs one.
        cause: The place in the claim that the object refers to, below the claim's `devices`; None
            where the place in the object says it all.
        fitting: The fix as the numbers of claims; None where it is another than to request smaller ones.
        other_fitting: The numbers to request instead of those of `fitting`; None without a choice.
        droppable: The requests of claims of which it is enough to drop one, also instead of `fitting`;
            empty where the fix is another.
        widening: The fix as choices of devices in claims, or that instead of `fitting`; None where it is
            another than to widen those.
        corrections: The fix as amounts in the object, all of which it takes; empty where it is another
            than to write amounts, or leaves a choice.
        rewrites: The fix as texts in the object, all of which it takes; empty like `corrections`.
        reasons: The reasons against the devices, by group of nodes.
        fix_place: The place that the words of `fix` name, written as in them; None where they name none.
    """

    severity: Severity
    code: Code
    path: FieldPath
    detail: str
    fix: str = ""
    cause: FieldPath | None = None
    fitting: FittingAmounts | None = None
    other_fitting: FittingAmounts | None = None
    widening: WiderChoices | None = None
    droppable: tuple[DroppedRequest, ...] = ()
    corrections: tuple[Correction, ...] = ()
    rewrites: tuple[Rewrite, ...] = ()
    reasons: tuple[str, ...] = ()
    fix_place: FieldPath | None = None

    @property
    def advice(self) -> str:
        """Return all of it in one line: the message, the fix, and the reasons after them."""
        text = f"{self.message}; {self.fix}" if self.fix else self.message
        return f"{text} ({'. '.join(self.reasons)})" if self.reasons else text

    @property
    def message(self) -> str:
        """Return the sentence about the fault, with the place in the claim if `path` has one."""
        return self.detail if self.cause is None else f"{self.cause}: {self.detail}"

    @property
    def is_error(self) -> bool:
        """Return True if the object is rejected for this."""
        return self.severity is Severity.ERROR

    def nested_under(self, prefix: FieldPath) -> "Finding":
        """Return the same finding for an object that contains this one at `prefix`."""
        return self.relocated(prefix.join)

    def relocated(self, relocate: Callable[[FieldPath], FieldPath]) -> "Finding":
        """Return the same finding with the place in another object for each in this one."""
        corrections = tuple(
            msgspec.structs.replace(correction, path=relocate(correction.path))
            for correction in self.corrections
        )
        rewrites = tuple(
            msgspec.structs.replace(rewrite, path=relocate(rewrite.path))
            for rewrite in self.rewrites
        )
        moved = msgspec.structs.replace(
            self, path=relocate(self.path), corrections=corrections, rewrites=rewrites
        )
        if self.fix_place is None:
            return moved
        place = relocate(self.fix_place)
        return msgspec.structs.replace(
            moved, fix=self.fix.replace(str(self.fix_place), str(place)), fix_place=place
        )

    def without_edits(self) -> "Finding":
        """Return the finding with its fix in words only, as its places are in another object."""
        return msgspec.structs.replace(self, corrections=(), rewrites=())

    def renamed_to(self, name: str) -> "Finding":
        """Return the finding with another name for the key at its path as the fix; itself without a name."""
        if not name:
            return self
        return msgspec.structs.replace(self, rewrites=(Renaming(path=self.path, name=name),))

    def rewritten(self, before: str, after: str) -> "Finding":
        """Return the finding with another text at its path as the fix; itself without a text."""
        if not after:
            return self
        rewrite = Replacement(path=self.path, before=before, after=after)
        return msgspec.structs.replace(self, rewrites=(rewrite,))

    def corrected_by(self, amount: Quantity) -> "Finding":
        """Return the finding with an amount at its path as the fix."""
        correction = Correction(path=self.path, amount=amount)
        return msgspec.structs.replace(self, corrections=(correction,))


def error(code: Code, path: FieldPath, message: str, fix: str = "") -> Finding:
    """Return a finding that rejects the object."""
    return Finding(severity=Severity.ERROR, code=code, path=path, detail=message, fix=fix)


def warning(code: Code, path: FieldPath, message: str, fix: str = "") -> Finding:
    """Return a finding that accepts the object and reports a loss."""
    return Finding(severity=Severity.WARNING, code=code, path=path, detail=message, fix=fix)


def info(code: Code, path: FieldPath, message: str, fix: str = "") -> Finding:
    """Return a finding that only informs."""
    return Finding(severity=Severity.INFO, code=code, path=path, detail=message, fix=fix)


def has_errors(findings: Iterable[Finding]) -> bool:
    """Return True if any finding rejects the object."""
    return any(finding.is_error for finding in findings)
