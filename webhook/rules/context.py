"""What rules may know besides the object itself: a frozen picture of a cluster, or of files."""

from collections.abc import Collection, Mapping

import msgspec

from allocator.cluster import Cluster
from allocator.core.model import Features
from kube.api.policy import DeviceCompatibilityPolicy
from kube.api.resource import DeviceClaim, DeviceClass
from webhook.rules.emptied import Emptied
from webhook.rules.enforcement import Configured
from webhook.rules.inventory import Inventory
from webhook.rules.mark import Mark

Place = tuple[str, str]
"""Namespace and name."""


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """A picture of what is there.

    Attributes:
        classes: Those that are known, by name.
        inventory: What is published; that of files counts as the largest ever seen.
        policies: In force.
        features: Gates of the cluster.
        claims: What each ResourceClaim asks for.
        templates: What each ResourceClaimTemplate asks for.
        namespaces: Namespace to its labels.
        knows_classes: A class that is not among `classes` is not there.
        knows_claims: A claim or template that is not here is not there.
        is_settled: All objects are meant to be together, as in files that are applied at once.
            In a running cluster slices of a pool come one by one, and what contradicts another
            may be the first half of a change.
        emptied: What there could be room for; None where nobody is to be told of it.
        present: The cluster as it is used now; None where nobody is to be told of it.
        allocated: ResourceClaims that have their devices.
        extended_resources: Name of an extended resource to name of the class that maps it.
        mark: The largest inventory ever seen.
        growers: What may add nodes, in words: a cluster autoscaler, Karpenter.
        configured: What is done about verdicts on the inventory.
    """

    classes: Mapping[str, DeviceClass] = {}
    inventory: Inventory = msgspec.field(default_factory=Inventory)
    policies: tuple[DeviceCompatibilityPolicy, ...] = ()
    features: Features = Features()
    claims: Mapping[Place, DeviceClaim] = {}
    templates: Mapping[Place, DeviceClaim] = {}
    namespaces: Mapping[str, Mapping[str, str]] = {}
    knows_classes: bool = False
    knows_claims: bool = False
    is_settled: bool = False
    emptied: Emptied | None = None
    present: Cluster | None = None
    allocated: Collection[Place] = frozenset()
    extended_resources: Mapping[str, str] = {}
    mark: Mark = Mark()
    growers: Collection[str] = frozenset()
    configured: Configured = Configured()
