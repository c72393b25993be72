"""What a rule is: one row of the table, with the function that judges and what else is told of it.

To add one: docs/howto/add-a-rule.md.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, Final, Generic, TypeVar

import msgspec

from kube.api.core import Pod
from kube.api.policy import DeviceCompatibilityPolicy
from kube.api.resource import DeviceClaim, DeviceClass, ResourceSlice
from webhook.findings import Code, Finding
from webhook.rules.context import Context

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class Class(StrEnum):
    """What kind of fault a rule finds; the three are never mixed."""

    WRONG = "wrong by itself"
    """Whatever the cluster, it cannot mean what it says. Denied."""
    NEVER = "can never fit"
    """The inventory has nothing for it. Denied where the inventory is proof, else warned."""
    NOW = "not yet"
    """Something that may come is not there. A warning."""
    ADVICE = "advice"
    """It works, and probably not as its author thinks. A warning."""


class Part(StrEnum):
    """What a rule looks at."""

    HEAD = "head"
    OBJECT = "object"
    CLAIM = "claim"
    CLASS = "class"
    SLICE = "slice"
    POLICY = "policy"
    POD = "pod"


KINDS: Final[Mapping[Part, tuple[str, ...]]] = {
    Part.HEAD: ("ResourceClaim", "ResourceClaimTemplate", "DeviceClass", "ResourceSlice"),
    Part.OBJECT: ("ResourceClaim", "ResourceClaimTemplate", "DeviceClass", "ResourceSlice"),
    Part.CLAIM: ("ResourceClaim", "ResourceClaimTemplate"),
    Part.CLASS: ("DeviceClass",),
    Part.SLICE: ("ResourceSlice",),
    Part.POLICY: ("DeviceCompatibilityPolicy",),
    Part.POD: ("Pod", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet", "CronJob", "Job"),
}
"""The kinds that have such a part."""


class Subject(msgspec.Struct, Generic[T_co], frozen=True, kw_only=True):
    """What is judged.

    Attributes:
        view: Its typed view.
        raw: The same as it was parsed, with the fields that the view drops.
        namespace: Where it is; empty for what has none.
    """

    view: T_co
    raw: Mapping[str, Any] = {}
    namespace: str = ""


Judge = Callable[[Subject[T], str, Context], Iterable[Finding]]
"""From object, the path that leads to it, and context to findings."""


class InServer(msgspec.Struct, frozen=True, kw_only=True):
    """How the API server itself says it, in a ValidatingAdmissionPolicy.

    Attributes:
        expression: True where all is well. It may use `variables` of its part (see in_server.py).
        message: What is told where it is false.
    """

    expression: str
    message: str


class Rule(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One rule.

    Attributes:
        cure: What would be right, in general; the findings say it for the object at hand.
        cel: Exactly one of this and `why_not_cel` is set.
    """

    code: Code
    part: Part
    rank: Class
    judge: Judge[T]
    cure: str
    cel: InServer | None = None
    why_not_cel: str = ""


ClaimRule = Rule[DeviceClaim]
ClassRule = Rule[DeviceClass]
SliceRule = Rule[ResourceSlice]
PolicyRule = Rule[DeviceCompatibilityPolicy]
PodRule = Rule[Pod]

# --- why the API server does not say it -----------------------------------------------------------

BUILT_IN: Final = "the API server's own validation refuses it before any policy is asked"
OTHER_OBJECTS: Final = "it depends on other objects, which a policy does not see"
NO_COMPILER: Final = "a policy cannot compile or run the expression of another object"
OUR_KIND: Final = "the schema and CEL rules of our CRD say it"
DROPPED: Final = "the API server drops or refuses the field while it decodes"
