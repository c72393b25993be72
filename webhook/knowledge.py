"""What rules know of a running cluster, kept up to date change by change.

Three pictures of one inventory: as it is published, as it is used, and as if nothing were allocated.
Changes come in bundles, and between two of them everything stands still: a context is good until the
next bundle. What concerns all nodes, or comes in crowds, has a picture built anew, which also lets go
of what the allocator remembers.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from allocator.core.model import Features
from allocator.core.problem import Rules
from allocator.core.rules import compiled
from allocator.pod_claims import Name, allocation_of
from kube.api.meta import ApiStruct
from kube.api.policy import DeviceCompatibilityPolicy, in_force
from kube.api.resource import DeviceClaim, DeviceClass, ResourceClaim, ResourceSlice
from webhook.picture import APPLIED, CROWD, Changes, Kind, Picture
from webhook.rules.context import Context, Place
from webhook.rules.emptied import Emptied
from webhook.rules.enforcement import Configured
from webhook.rules.inventory import Inventory
from webhook.rules.mark import Mark, Stock

K = TypeVar("K")


class Around(msgspec.Struct, frozen=True, kw_only=True):
    """What rules know besides devices and claims.

    Attributes:
        namespaces: Namespace to its labels.
        growers: What may add nodes, in words.
        mark: The largest inventory ever seen.
        configured: What is done about verdicts on the inventory.
    """

    namespaces: Mapping[str, Mapping[str, str]] = {}
    growers: Collection[str] = frozenset()
    mark: Mark = Mark()
    configured: Configured = Configured()


class Knowledge:
    """A cluster as rules see it. Not for several threads at once."""

    def __init__(self, features: Features) -> None:
        """Know of an empty cluster.

        Args:
            features: Gates of the cluster's scheduler.
        """
        self._features = features
        self._picture = Picture(features)
        self._kept: dict[Kind, dict[Name, Any]] = {kind: {} for kind in Kind}
        self._classes: dict[str, DeviceClass] = {}
        self._claims: dict[Place, DeviceClaim] = {}
        self._templates: dict[Place, DeviceClaim] = {}
        self._allocated: set[Place] = set()
        self._policies: tuple[DeviceCompatibilityPolicy, ...] = ()
        self._applied = 0
        self._inventory, self._emptied = self._built()

    # --- questions -------------------------------------------------------------------------------

    def context(self, around: Around = Around()) -> Context:  # noqa: B008 - a frozen value
        """Return what rules may know; good until the next change."""
        return Context(
            classes=self._classes,
            inventory=self._inventory,
            policies=self._policies,
            features=self._features,
            claims=self._claims,
            templates=self._templates,
            namespaces=around.namespaces,
            knows_classes=True,
            emptied=self._emptied,
            present=self._picture.cluster,
            extended_resources=self._picture.extended_resources,
            allocated=self._allocated,
            mark=around.mark,
            growers=around.growers,
            configured=around.configured,
        )

    def stocks(self) -> Mapping[str, Stock]:
        """Return what there is of every class now, by driver."""
        return {name: self._emptied.stock(name) for name in sorted(self._classes)}

    def stored(self, kind: Kind) -> Iterator[ApiStruct]:
        """Yield the objects of a kind, by namespace and name."""
        kept = self._kept[kind]
        yield from (kept[key] for key in sorted(kept))

    # --- changes ---------------------------------------------------------------------------------

    def apply(self, changes: Changes) -> None:
        """Take notice of changes."""
        if not any(changes.values()):
            return
        slices = self._kept[Kind.SLICE]
        replaced = [(slices.get(key), new) for key, new in changes.get(Kind.SLICE, {}).items()]
        for kind, each in changes.items():
            for key, new in each.items():
                _put(self._kept[kind], key, new)
        for key, claim in changes.get(Kind.CLAIM, {}).items():
            self._note_claim(key, claim)
        for key, template in changes.get(Kind.TEMPLATE, {}).items():
            _put(self._templates, key, None if template is None else template.spec.spec.devices)
        for (_, name), device_class in changes.get(Kind.CLASS, {}).items():
            _put(self._classes, name, device_class)
        if changes.get(Kind.POLICY):
            self._policies = tuple(in_force(self._kept[Kind.POLICY].values()).values())
        self._picture.apply(changes)
        self._note_inventory(changes, replaced)

    def _note_claim(self, key: Name, claim: ResourceClaim | None) -> None:
        is_allocated = claim is not None and allocation_of(claim) is not None
        # Of what has its devices nothing else is kept.
        _put(self._claims, key, None if claim is None or is_allocated else claim.spec.devices)
        if is_allocated:
            self._allocated.add(key)
        else:
            self._allocated.discard(key)

    def _note_inventory(
        self, changes: Changes, slices: list[tuple[ResourceSlice | None, ResourceSlice | None]]
    ) -> None:
        nodes = changes.get(Kind.NODE, {})
        self._applied += len(nodes) + len(slices)
        crowd = len(nodes) + len(slices)
        if crowd > CROWD or self._applied > APPLIED or changes.get(Kind.POLICY):
            self._inventory, self._emptied = self._built()
            return
        for (_, name), node in nodes.items():
            self._emptied.replace_node(name, node)
        for old, new in slices:
            self._inventory.replace_slice(old, new)
            self._emptied.replace_slice(old, new)
        if changes.get(Kind.CLASS):
            self._emptied.forget()

    def _built(self) -> tuple[Inventory, Emptied]:
        self._applied = 0
        slices = [one for _, one in sorted(self._kept[Kind.SLICE].items())]
        rules = Rules(features=self._features, policies=tuple(map(compiled, self._policies)))
        emptied = Emptied(
            slices=slices,
            nodes=self._kept[Kind.NODE].values(),
            classes=self._classes,
            rules=rules,
        )
        return Inventory(slices), emptied


def _put(kept: dict[K, Any], key: K, new: object) -> None:
    if new is None:
        kept.pop(key, None)
    else:
        kept[key] = new
