"""The cluster as the allocator is asked about it, kept up to date change by change.

What changed is given in a bundle, so that whoever asks decides when: between two bundles the picture
stands still. Most changes are applied to what there is; what concerns all nodes, and what comes in
crowds, has it built anew. That also lets go of what the allocator remembers of looks that are past,
so memory has a bound.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from allocator.cluster import Cluster
from allocator.core.model import Features
from allocator.core.pools import tainted
from allocator.core.problem import Rules
from allocator.core.rules import compiled
from allocator.pod_claims import Name, allocation_of
from kube.api.policy import in_force
from kube.api.resource import DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from webhook.extended_resources import extended_resources

CROWD: Final = 256
"""Changes of slices and nodes that are applied one by one; more are cheaper together."""
APPLIED: Final = 100_000
"""Changes after which it is built anew."""


class Kind(StrEnum):
    """What the picture shows, by resource."""

    NODE = "nodes"
    CLAIM = "resourceclaims"
    TEMPLATE = "resourceclaimtemplates"
    SLICE = "resourceslices"
    CLASS = "deviceclasses"
    TAINT_RULE = "devicetaintrules"
    POLICY = "devicecompatibilitypolicies"


_ABOUT_ALL: Final = (Kind.CLASS, Kind.TAINT_RULE, Kind.POLICY)
"""Of these there are few, and they hardly change."""

Changes = Mapping[Kind, Mapping[Name, Any]]
"""Kind to namespace and name to the new value, None for what is gone."""


class Picture:
    """A cluster that is told of changes. Not for several threads at once.

    Attributes:
        version: Grows with every bundle that changed something.
        cluster: To be asked; another one after some changes.
        extended_resources: Name of an extended resource to name of the class that maps it.
    """

    def __init__(self, features: Features) -> None:
        self.version = 0
        self.extended_resources: Mapping[str, str] = {}
        self._features = features
        self._kept: dict[Kind, dict[Name, Any]] = {kind: {} for kind in Kind}
        self._published: dict[Name, ResourceSlice] = {}
        self._applied = 0
        self.cluster = self._built()

    @property
    def claims(self) -> Mapping[Name, ResourceClaim]:
        """All claims."""
        return self._kept[Kind.CLAIM]

    @property
    def templates(self) -> Mapping[Name, ResourceClaimTemplate]:
        """All templates."""
        return self._kept[Kind.TEMPLATE]

    @property
    def classes(self) -> Mapping[str, DeviceClass]:
        """All classes by name."""
        return {name: each for (_, name), each in self._kept[Kind.CLASS].items()}

    def apply(self, changes: Changes) -> None:
        """Take notice of changes."""
        count = sum(map(len, changes.values()))
        if not count:
            return
        self.version += 1
        self._applied += count
        crowd = sum(len(changes.get(kind, ())) for kind in (Kind.NODE, Kind.SLICE))
        anew = crowd > CROWD or self._applied > APPLIED or any(map(changes.get, _ABOUT_ALL))
        before = {
            kind: {key: self._kept[kind].get(key) for key in each} for kind, each in changes.items()
        }
        for kind, each in changes.items():
            for key, new in each.items():
                _put(self._kept[kind], key, new)
        if anew:
            self.cluster = self._built()
            return
        for (_, name), node in changes.get(Kind.NODE, {}).items():
            self.cluster.replace_node(name, node)
        for key, new in changes.get(Kind.SLICE, {}).items():
            self._replace_slice(key, new)
        for key, claim in changes.get(Kind.CLAIM, {}).items():
            self._replace_claim(before[Kind.CLAIM][key], claim)

    def _replace_slice(self, key: Name, new: ResourceSlice | None) -> None:
        old = self._published.get(key)
        published = self._tainted({key: new})[key] if new is not None else None
        _put(self._published, key, published)
        self.cluster.replace_slice(old, published)

    def _replace_claim(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        held, holds = (None if each is None else allocation_of(each) for each in (old, new))
        if held == holds:
            return
        if old is not None and held is not None:
            self.cluster.release(old)
        if new is not None and holds is not None:
            self.cluster.allocate(new)

    def _built(self) -> Cluster:
        self._applied = 0
        self._published = self._tainted(self._kept[Kind.SLICE])
        self.extended_resources = extended_resources(self.classes.values())
        policies = in_force(self._kept[Kind.POLICY].values()).values()
        return Cluster(
            slices=self._published.values(),
            nodes=self._kept[Kind.NODE].values(),
            claims=self._kept[Kind.CLAIM].values(),
            classes=self.classes,
            rules=Rules(features=self._features, policies=tuple(map(compiled, policies))),
        )

    def _tainted(self, slices: Mapping[Name, ResourceSlice]) -> dict[Name, ResourceSlice]:
        """Return slices with the taints that rules add."""
        features = self._features
        if not (features.device_taints and features.device_taint_rules):
            return dict(slices)
        rules = self._kept[Kind.TAINT_RULE].values()
        return dict(zip(slices, tainted(slices.values(), rules), strict=True))


def _put(kept: dict[Name, Any], key: Name, new: object) -> None:
    if new is None:
        kept.pop(key, None)
    else:
        kept[key] = new
