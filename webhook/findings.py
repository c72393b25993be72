"""What we say about an object: severity, code, place, message, fix.

A finding is a value. The command line prints it, the webhook turns errors into the causes of a 422
and warnings into admission warnings. Codes are part of the interface: scripts match on them.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

import msgspec


class Severity(StrEnum):
    """How much a finding matters."""

    ERROR = "error"
    """The object is refused."""
    WARNING = "warning"
    """The object is accepted, and something that it said is lost or changed."""
    INFO = "info"
    """The object is accepted; worth knowing."""


class Code(StrEnum):
    """Every reason that we give, by name; the text under each is its cause."""

    # Values that a device plugin, or the API server, would not take either.
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
    """A device key stands in requests and not in limits."""
    LIMIT_DIFFERS = "limitDiffers"
    """A device key has different amounts in requests and limits."""
    UNKNOWN_MIG_PROFILE = "unknownMigProfile"
    """The text after mig- is not the name of a MIG profile."""
    UNKNOWN_MODE = "unknownMode"
    """The vgpu-mode annotation names no mode that exists."""
    INVALID_COMBINATION = "invalidCombination"
    """Keys stand together that the legacy scheduler does not take together."""
    MALFORMED_ANNOTATION = "malformedAnnotation"
    """An annotation is not the JSON that it should be, or names something that does not exist."""
    NOTHING_MATCHES = "nothingMatches"
    """A list of card types or UUIDs is not blank and holds no item, so no device would match."""
    TOO_LONG = "tooLong"
    """A text is longer than a CEL selector may be."""
    TOO_LARGE = "tooLarge"
    """The pod asks for devices and has more of something than is read."""
    INVALID_OBJECT = "invalidObject"
    """A field of the object has the wrong type."""

    # Wishes that the target cannot hold.
    CANNOT_EXPRESS = "cannotExpress"
    """The profile's driver has no way to say this key."""
    PUBLISHED_OTHERWISE = "publishedOtherwise"
    """The driver could hold this with other devices, or if it published them in another way."""
    SIZES_UNKNOWN = "sizesUnknown"
    """A percentage of memory needs the published sizes of the devices, and none are known."""
    TOO_MANY_SIZES = "tooManySizes"
    """The devices have more memory sizes than a request may have alternatives."""
    TOO_MANY_DEVICES = "tooManyDevices"
    """A claim holds at most 32 devices."""
    TOO_MANY_REQUESTS = "tooManyRequests"
    """A claim holds at most 32 requests."""
    SEVERAL_OWNERS = "severalOwners"
    """Two legacy systems would own the same devices of the pod."""
    PRIVILEGED_SHARE = "privilegedShare"
    """A privileged container sees every device of its node, so a share cannot be kept."""

    # The place that the object comes to.
    QUOTA_NOT_COUNTED = "quotaNotCounted"
    """A ResourceQuota counts a key that the translation takes away."""
    TEMPLATE_TAKEN = "templateTaken"
    """A ResourceClaimTemplate of our name exists with other content."""
    DEVICE_CLASS_MISSING = "deviceClassMissing"
    """The cluster state has no DeviceClass of the name that the claim uses. A snapshot that was taken
    without any DeviceClass does not say so."""
    FOREIGN_SCHEDULER = "foreignScheduler"
    """The pod names a scheduler that is not known to understand claims; left alone."""
    CLAIMS_NOT_SEEN = "claimsNotSeen"
    """Something that counts pods, or adds nodes for them, may not see their claims."""
    NODE_NAME_SET = "nodeNameSet"
    """The pod is bound to a node without a scheduler; left alone."""

    # The annotation of a translated pod.
    REQUEST_MALFORMED = "requestMalformed"
    """The request annotation is not what the webhook writes."""
    REQUEST_FORGED = "requestForged"
    """The pod's claims do not derive from its request annotation."""
    REQUEST_CHANGED = "requestChanged"
    """The request annotation, or a recorded amount, was changed after the pod was made."""
    PROFILE_CHANGED = "profileChanged"
    """The request annotation was made with a profile that is not the one in force."""

    # Accepted, and something is lost.
    CLAMPED = "clamped"
    """The amount was lowered to the largest that means anything."""
    POLICY_DROPPED = "policyDropped"
    """A placement policy of another scheduler has no form in a claim."""
    NOT_PUBLISHED = "notPublished"
    """The driver publishes nothing that this wish could refer to."""
    WHOLE_DEVICE = "wholeDevice"
    """A share was asked for and a whole device will be given."""
    NOT_ALONE = "notAlone"
    """The pod wants a device for itself, and others may still come beside it."""
    CLAIMED_TWICE = "claimedTwice"
    """The pod has a claim of its own for the driver that its legacy keys get devices of, too."""
    SHARED_IN_POD_ONLY = "sharedInPodOnly"
    """The device is shared inside this pod, and not with other pods."""
    MIXED_HARDWARE = "mixedHardware"
    """Nodes differ in how many devices share a PCIe root, and groups fit only some of them."""
    SMALLEST_NOT_CHOSEN = "smallestNotChosen"
    """The smallest sufficient MIG device is not preferred, because the sizes are unknown."""
    INIT_SHARES_DEVICE = "initSharesDevice"
    """An init container uses the devices of an app container and sees more than it asked for."""
    HELD_FOR_LIFE = "heldForLife"
    """Devices of an init container stay with the pod for its whole life."""
    NO_DEVICE_ASKED = "noDeviceAsked"
    """Companion keys stand beside a count of zero, or without any, so they mean nothing."""
    OPENS_DEVICES = "opensDevices"
    """An environment variable may open devices beyond the claim."""
    NOT_INJECTED = "notInjected"
    """A variable or label asks an agent of the node for something that a claim does not bring."""
    VARIABLE_LOST = "variableLost"
    """The device plugin tells the container its devices in a variable, and a claim does not."""
    KEPT_VALUE = "keptValue"
    """The pod already sets what the translation would add; the pod's value stays."""
    SHARED_NODE_LABEL = "sharedNodeLabel"
    """The node selector asks for nodes whose device plugin shares GPUs."""

    # Accepted; worth knowing.
    PASSED_THROUGH = "passedThrough"
    """A DeviceClass maps the keys, so Kubernetes itself allocates; nothing was changed."""
    OPTED_OUT = "optedOut"
    """A label of the pod or of its namespace switches translation off."""
    ALREADY_CONVERTED = "alreadyConverted"
    """Another converter made this pod's claims."""
    NODE_LABEL = "nodeLabel"
    """The node selector uses labels of GPU feature discovery, which must keep running."""

    # Judged: objects of DRA, and pods with claims. What to do about each: webhook/rules.
    OLD_VERSION = "oldVersion"
    """The object is of a version of resource.k8s.io that 1.37 does not serve unless told to."""
    OLD_FIELD = "oldField"
    """The field is of an older version of resource.k8s.io, and this version drops it."""
    UNKNOWN_FIELD = "unknownField"
    """Kubernetes 1.37 knows no such field, and drops it or refuses the object."""
    REQUEST_SHAPE = "requestShape"
    """A request says neither or both of `exactly` and `firstAvailable`, or names no class."""
    DUPLICATE_NAME = "duplicateName"
    """A name stands twice where each must be distinct."""
    INVALID_COUNT = "invalidCount"
    """The allocation mode does not exist, or the count does not go with it."""
    UNKNOWN_REQUEST = "unknownRequest"
    """A constraint, a configuration or a container names a request that the claim does not have."""
    INVALID_CONSTRAINT = "invalidConstraint"
    """A constraint names no attribute, or one without a domain."""
    BOTH_ATTRIBUTES = "bothAttributes"
    """A constraint has `matchAttribute` and `distinctAttribute`, and the scheduler ignores the latter."""
    LONELY_CONSTRAINT = "lonelyConstraint"
    """A constraint is about one device, which always agrees with itself."""
    INVALID_TOLERATION = "invalidToleration"
    """A toleration has an operator, a value or an effect that means nothing."""
    KEYLESS_TOLERATION = "keylessToleration"
    """A toleration of operator Equal has no key, so it tolerates only taints of its value."""
    TOO_MANY_TOLERATIONS = "tooManyTolerations"
    """A request has at most 16 tolerations; nobody else checks it."""
    IDLE_TOLERATION = "idleToleration"
    """A toleration of effect None tolerates what keeps nobody away."""
    NEGATIVE_CAPACITY = "negativeCapacity"
    """An amount below zero ends the attempt on all nodes, unless a device's range raises it."""
    SEVERAL_SLASHES = "severalSlashes"
    """The name of an attribute or capacity has several slashes, so no selector reaches it."""
    ADMIN_ACCESS = "adminAccess"
    """The namespace is not labelled for administrative access."""
    INVALID_SELECTOR = "invalidSelector"
    """A CEL expression does not compile, or cannot be true or false."""
    PARTLY_JUDGED = "partlyJudged"
    """The object has more expressions than are judged; the rest of them was let pass."""
    ATTRIBUTE_MEMBER = "attributeMember"
    """An expression asks an attribute for `.string` or the like, which fails on every device."""
    RETIRED_ATTRIBUTE = "retiredAttribute"
    """An expression asks for an attribute that its driver no longer publishes."""
    UNGUARDED_SELECTOR = "unguardedSelector"
    """A selector of a class fails on other drivers' devices, and so bars the nodes that have them."""
    SELECTS_EVERYTHING = "selectsEverything"
    """A class without selectors holds every device of every driver."""
    INVALID_CONFIG = "invalidConfig"
    """The driver would refuse these opaque parameters when the pod starts."""
    CONFIG_MISMATCH = "configMismatch"
    """The parameters are for another type of device than the request gets."""
    CONFIG_NOT_APPLIED = "configNotApplied"
    """The driver ignores the parameters, since results are named by alternative."""
    NEEDS_GATE = "needsGate"
    """The driver takes these parameters only with a feature gate of its own, which is off by default."""
    SHARED_ALREADY = "sharedAlready"
    """The driver shares these devices by amounts, and refuses MPS beside that."""
    INVALID_EXTENDED_RESOURCE = "invalidExtendedResource"
    """No container could ask for an extended resource of this name."""
    SAME_EXTENDED_RESOURCE = "sameExtendedResource"
    """Two classes have one extended resource, and the newest gets its pods."""
    SLICE_SHAPE = "sliceShape"
    """A slice or one of its attributes says none or several of what must be one."""
    SEVERAL_TERMS = "severalTerms"
    """The node selector of a device has several terms, and the scheduler fails when it takes it."""
    INVALID_POLICY = "invalidPolicy"
    """A request policy has an amount below zero, or a default above the value."""
    SLICE_COUNT_DIFFERS = "sliceCountDiffers"
    """Slices of one pool and generation say different numbers of slices, so it is never whole."""
    DEVICE_TWICE = "deviceTwice"
    """Two slices of a pool have a device of one name, so none of the pool is used."""
    UNKNOWN_COUNTER_SET = "unknownCounterSet"
    """A device consumes a counter that its pool does not have, so none of the pool is used."""
    INVALID_GROUPS = "invalidGroups"
    """A rule of a policy names too many groups, or one twice."""
    RULE_SAYS_NOTHING = "ruleSaysNothing"
    """A rule of a policy has neither groups nor an expression."""
    DRIVER_TAKEN = "driverTaken"
    """An older policy is about the same driver, so this one would count for nothing."""
    CLAIM_SOURCE = "claimSource"
    """A pod's claim names neither or both of a claim and a template."""
    UNKNOWN_CLAIM = "unknownClaim"
    """A container uses a claim that the pod does not have."""
    CLAIM_MISSING = "claimMissing"
    """The cluster state has no claim or template of the name that the pod uses."""
    SELECTOR_MATCHES_NOTHING = "selectorMatchesNothing"
    """No published device satisfies the selectors."""
    SELECTOR_FAILS = "selectorFails"
    """A selector raises on a published device, which bars the nodes that have it."""
    CAPACITY_NOT_PUBLISHED = "capacityNotPublished"
    """No device that fits the selectors has a capacity of this name."""
    MORE_THAN_ANY_DEVICE = "moreThanAnyDevice"
    """An amount is more than any device has that fits the selectors, in use or not."""
    OUTSIDE_REQUEST_POLICY = "outsideRequestPolicy"
    """An amount, rounded as the request policies say, is more than they or the devices allow."""
    MORE_THAN_ANY_NODE = "moreThanAnyNode"
    """A count is above what any node gives of the devices that fit the selectors, in use or not."""
    CONSTRAINT_NEVER_MET = "constraintNeverMet"
    """The devices of no node meet the constraints, even if nothing were allocated."""
    MODES_EXCLUDE = "modesExclude"
    """Requests ask for devices of which no node has such that go together: their modes, groups or
    policies exclude each other."""
    NEVER_TOGETHER = "neverTogether"
    """Each request can be met by itself, and all of them by no node together."""
    NEVER_USABLE = "neverUsable"
    """There are devices that fit the selectors, and something keeps every one of them from use."""
    NOT_JUDGED = "notJudged"
    """Whether it can ever fit would have taken too long to find out, so it was accepted."""
    DOES_NOT_FIT_NOW = "doesNotFitNow"
    """It would fit if nothing were allocated or tainted, and as things are now it has to wait."""


MAY_PASS: Final[Mapping[Code, str]] = {
    Code.PUBLISHED_OTHERWISE: "the driver's settings can change before its next pods come",
    Code.SIZES_UNKNOWN: "drivers publish when they start, often after the workloads are applied",
    Code.TOO_MANY_SIZES: "nodes come and go, and the sizes of their devices with them",
    Code.QUOTA_NOT_COUNTED: "quotas are applied beside workloads, in no order",
    Code.TEMPLATE_TAKEN: "the template is deleted, by its owner or by our controller",
    Code.DEVICE_CLASS_MISSING: "a driver brings its classes, often after the workloads",
    Code.PROFILE_CHANGED: "a profile comes with an upgrade, beside the workloads made for it",
}
"""Codes whose cause is the cluster of the moment, and how it passes. The pods of a workload come
later, so there these only warn; every other error is wrong by itself and refuses it."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that we say.

    Attributes:
        path: Relative to the object, as the API server writes paths.
        fix: What would be right; empty where the message says it or nothing needs mending.
    """

    severity: Severity
    code: Code
    path: str
    message: str
    fix: str = ""

    @property
    def is_error(self) -> bool:
        """Whether the object is refused for this."""
        return self.severity is Severity.ERROR

    def below(self, prefix: str) -> "Finding":
        """Return the same finding for an object that holds this one at `prefix`."""
        return msgspec.structs.replace(self, path=".".join(filter(None, (prefix, self.path))))


def error(code: Code, path: str, message: str, fix: str = "") -> Finding:
    """Return a finding that refuses the object."""
    return Finding(severity=Severity.ERROR, code=code, path=path, message=message, fix=fix)


def warning(code: Code, path: str, message: str, fix: str = "") -> Finding:
    """Return a finding that accepts the object and says what is lost."""
    return Finding(severity=Severity.WARNING, code=code, path=path, message=message, fix=fix)


def info(code: Code, path: str, message: str) -> Finding:
    """Return a finding that only informs."""
    return Finding(severity=Severity.INFO, code=code, path=path, message=message)


def has_errors(findings: Iterable[Finding]) -> bool:
    """Whether any of the findings refuses the object."""
    return any(finding.is_error for finding in findings)


SHOWN_TEXT_LENGTH = 80
MAX_KEY_LENGTH = 317
"""Of a resource name: 253 characters of a domain, a slash, 63 of a name."""


def shown(text: str, length: int = SHOWN_TEXT_LENGTH) -> str:
    r"""Return foreign text fit for a message: quoted, on one line, without control characters.

    >>> print(shown("a\nb"))
    "a\nb"
    """
    cut = text if len(text) <= length else text[: length - 3] + "..."
    return f'"{printable(cut)}"'


def printable(text: str) -> str:
    r"""Return text with its control characters escaped, so that no terminal and no log obeys it.

    >>> print(printable("nvidia.com/mig-\x1b[2J"))
    nvidia.com/mig-\x1b[2J
    """
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def amount_path(container: str, section: str, key: str) -> str:
    """Return the path of a container's limit or request, as the API server writes it."""
    # A key that is no resource name yet may be as long as a body.
    cut = key if len(key) <= MAX_KEY_LENGTH else key[: MAX_KEY_LENGTH - 3] + "..."
    return f"{container}.resources.{section}[{printable(cut)}]"
