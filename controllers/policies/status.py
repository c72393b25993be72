"""The status of a DeviceCompatibilityPolicy: conditions, a matrix of kinds, and conflicts in use.

Pools are inspected one by one, since of many nodes few change at a time. What is kept of a pool refers
to no device, so a large cluster costs little memory.

Claims are counted and never named: a policy is cluster-scoped, so its readers may not be allowed to
see every namespace. Events about claims and pods name those of their own namespace.

Source: docs/compatibility.md; meta/v1 Condition.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from allocator.compatibility.compile import compile_policy
from allocator.compatibility.conflicts_in_use import (
    ConflictInUse,
    find_config_conflicts,
    find_policy_conflicts,
)
from allocator.compatibility.enforcement import (
    PolicyEnforcement,
    groups_reject_the_same,
    policy_enforcement,
)
from allocator.compatibility.lint import lint_pool, merge_findings
from allocator.compatibility.lint_findings import PoolFindings
from allocator.compatibility.matrix import Matrix, build_matrix, device_kinds
from allocator.features.co_tenant_config import UNIFORM_CONFIG_DRIVERS
from allocator.model.devices import DeviceId, Pool, PoolId, PoolState, PublishedDevice
from allocator.model.feature_gates import Features
from allocator.model.pools import whole_pool
from allocator.model.scheduler_support import SchedulerSupport
from allocator.model.slice_index import build_index
from allocator.model.usage import Usage, gather_usage
from controllers.policies.conditions import (
    accepted_condition,
    cut,
    enforced_condition,
    symmetric_condition,
    valid_condition,
)
from findings.text import count_text
from kube.api.policy import (
    MAX_CONFLICT_DEVICES,
    MAX_EXAMPLES,
    MAX_ROW_NAME,
    MAX_ROWS,
    Conflict,
    Conflicts,
    DeviceCompatibilityPolicy,
    DeviceCompatibilityPolicyStatus,
    MatrixRow,
)
from kube.api.resource import ResourceClaim, ResourceSlice

FEATURES: Final = Features(compatibility_groups=True)
"""Whatever the cluster's scheduler does with groups, this is what slices say."""
_KUBE_SCHEDULER: Final = SchedulerSupport()
"""The features that a scheduler configured like that of Kubernetes 1.37 evaluates."""

_Key = tuple[int, tuple[frozenset[str] | None, ...]]
"""The identity of a kind over all pools: the number of its profile, and the groups that it declares."""


# --- one pool -------------------------------------------------------------------------------------


class PoolPart(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a report that is about one pool.

    Attributes:
        kinds: Kind to the number of its devices and the first of them.
        has_equivalent_groups: Groups in its slices reject all that the policy rejects.
    """

    state: PoolState
    findings: PoolFindings
    kinds: Mapping[_Key, tuple[int, DeviceId]]
    conflicts: tuple[ConflictInUse, ...]
    has_equivalent_groups: bool = False


def pool_of(id_: PoolId, slices: Iterable[ResourceSlice]) -> Pool:
    """Return a pool of its slices, incomplete without any."""
    index = build_index(slices, FEATURES)
    return whole_pool(index, id_) if index.by_pool else Pool(id=id_, state=PoolState.INCOMPLETE)


def usage_of(claims: Iterable[ResourceClaim]) -> Usage:
    """Return the devices that claims hold."""
    return gather_usage(claims, FEATURES)


# --- all pools ------------------------------------------------------------------------------------


class PolicyReport:
    """A policy and the pools of its driver.

    Attributes:
        policy: The compiled policy; another text of it is another report.
        parts: The parts of the report on the pools that were inspected.
    """

    def __init__(
        self,
        policy: DeviceCompatibilityPolicy,
        uniform_config_drivers: Collection[str] = UNIFORM_CONFIG_DRIVERS,
        support: SchedulerSupport = _KUBE_SCHEDULER,
    ) -> None:
        """Compile the policy, and begin without pools.

        Args:
            policy: The policy.
            uniform_config_drivers: Drivers that reject contradicting sharing configurations.
            support: The features that the cluster's schedulers evaluate.
        """
        self._uniform_config_drivers = uniform_config_drivers
        self._support = support
        self.policy = compile_policy(policy)
        self.parts: dict[PoolId, PoolPart] = {}
        self._examples: dict[_Key, PublishedDevice] = {}
        self._matrix: tuple[Mapping[_Key, DeviceId], Matrix] | None = None

    def inspect(self, pool: Pool, usage: Usage) -> None:
        """Replace the part of a pool."""
        published_devices = (*pool.devices, *pool.elsewhere)
        kinds = device_kinds(self.policy, published_devices)
        for kind in kinds:
            self._examples.setdefault((kind.profile.number, kind.groups), kind.devices[0])
        self.parts[pool.id] = PoolPart(
            state=pool.state,
            # Without usage, since findings name claims.
            findings=lint_pool(self.policy, pool, Usage()),
            kinds={
                (kind.profile.number, kind.groups): (len(kind.devices), kind.devices[0].id)
                for kind in kinds
            },
            conflicts=(
                *find_policy_conflicts(self.policy, pool, usage),
                *find_config_conflicts(pool.id, usage, self._uniform_config_drivers),
            ),
            has_equivalent_groups=self._support.compatibility_groups
            and groups_reject_the_same(self.policy, [published_devices]),
        )

    def forget(self, pool: PoolId) -> None:
        """Remove a pool that is not published any more."""
        self.parts.pop(pool, None)

    def conflicts(self) -> Iterator[ConflictInUse]:
        """Yield the devices in use that violate the policy, by pool."""
        for pool in sorted(self.parts):
            yield from self.parts[pool].conflicts

    def enforcement(self) -> PolicyEnforcement:
        """Decide if the policy is enforced in the pools that have it in force."""
        with_devices = [part for part in self.parts.values() if part.findings.has_devices]
        return policy_enforcement(
            self.policy,
            self._support,
            has_equivalent_groups=bool(with_devices)
            and all(part.has_equivalent_groups for part in with_devices),
        )

    def status(
        self,
        before: DeviceCompatibilityPolicyStatus | None,
        in_force: DeviceCompatibilityPolicy,
        now: str,
    ) -> DeviceCompatibilityPolicyStatus:
        """Return the status.

        Args:
            before: The status as stored: a condition keeps its time while its status is the same.
            in_force: The policy in force for the driver, perhaps this one.
            now: RFC 3339, in whole seconds.
        """
        findings = merge_findings(
            self.policy, [self.parts[pool].findings for pool in sorted(self.parts)]
        )
        counts, table = self._count_kinds()
        conflicts = self._count_conflicts()
        source, inspection, name = (
            self.policy.source,
            self._inspection_text(),
            in_force.metadata.name,
        )
        states = (
            valid_condition(findings, inspection),
            symmetric_condition(findings, inspection),
            accepted_condition(self.policy, name, conflicts),
            enforced_condition(self.policy, name, self.enforcement(), conflicts),
        )
        return DeviceCompatibilityPolicyStatus(
            observed_generation=source.metadata.generation,
            conditions=tuple(
                state.condition(before, source.metadata.generation, now) for state in states
            ),
            rules=len(source.spec.rules or ()),
            summary=_summary(table),
            matrix=tuple(_rows(table, counts)) or None,
            conflicts=conflicts,
        )

    def _inspection_text(self) -> str:
        """Describe the pools that were inspected; empty if none has devices."""
        states = Counter(part.state for part in self.parts.values())
        complete = states[PoolState.COMPLETE]
        others = states.total() - complete
        if not any(part.findings.has_devices for part in self.parts.values()):
            return ""
        left_out = f"; not inspected: {others} incomplete or invalid" if others else ""
        return f"{count_text(complete, 'pool')} of {self.policy.driver} inspected{left_out}"

    def _count_kinds(self) -> tuple[Mapping[_Key, int], Matrix]:
        """Return the number of devices of each kind, and the table of kinds."""
        counts: Counter[_Key] = Counter()
        firsts: dict[_Key, DeviceId] = {}
        for part in self.parts.values():
            for key, (count, first) in part.kinds.items():
                counts[key] += count
                firsts[key] = min(firsts.get(key, first), first)
        if self._matrix is None or self._matrix[0] != firsts:
            self._examples = {key: self._examples[key] for key in firsts}
            # One device stands for its kind, under the name of the first of them.
            examples = [
                PublishedDevice(
                    id=firsts[key], device=kind_example.device, slice=kind_example.slice
                )
                for key, kind_example in self._examples.items()
            ]
            self._matrix = firsts, build_matrix(self.policy, examples)
        return counts, self._matrix[1]

    def _count_conflicts(self) -> Conflicts | None:
        all_conflicts = list(self.conflicts())
        if not all_conflicts:
            return None
        claims = {
            claim
            for conflict in all_conflicts
            for holders in conflict.holders.values()
            for claim in holders
        }
        return Conflicts(
            count=len(all_conflicts),
            claims=len(claims),
            namespaces=len({namespace for namespace, _ in claims}),
            examples=tuple(
                Conflict(
                    pool=conflict.pool.pool,
                    devices=conflict.devices[:MAX_CONFLICT_DEVICES],
                    reason=cut(conflict.reason),
                )
                for conflict in all_conflicts[:MAX_EXAMPLES]
            ),
        )


def differs_in_more_than_counts(
    first: DeviceCompatibilityPolicyStatus | None, other: DeviceCompatibilityPolicyStatus
) -> bool:
    """Return True if statuses differ in more than numbers of devices.

    Nodes come and go, and with them devices of known kinds; that can wait.
    """
    return first is None or _without_counts(first) != _without_counts(other)


def _without_counts(status: DeviceCompatibilityPolicyStatus) -> object:
    return (
        status.observed_generation,
        [
            (condition.type, condition.status, condition.reason)
            for condition in status.conditions or ()
        ],
        [(row.name, row.compatible_with) for row in status.matrix or ()],
        status.conflicts is None,
    )


# --- the table ------------------------------------------------------------------------------------


def _summary(table: Matrix) -> str:
    if not table.kinds:
        return "no devices"
    compatible = sum(cell.is_compatible for row in table.cells for cell in row)
    pairs = f"{compatible} of {count_text(len(table.kinds) ** 2, 'pair')} compatible"
    if table.omitted:
        return f"{len(table.kinds)} of {len(table.kinds) + table.omitted} kinds, {pairs}"
    return f"{count_text(len(table.kinds), 'kind')}, {pairs}"


def _rows(table: Matrix, counts: Mapping[_Key, int]) -> Iterator[MatrixRow]:
    shown_kinds = table.kinds[:MAX_ROWS]
    for kind, cells in zip(shown_kinds, table.cells, strict=False):
        compatible_with = tuple(
            cut(other.name, MAX_ROW_NAME)
            for other, cell in zip(shown_kinds, cells, strict=False)
            if cell.is_compatible
        )
        yield MatrixRow(
            name=cut(kind.name, MAX_ROW_NAME),
            devices=counts[kind.profile.number, kind.groups],
            compatible_with=compatible_with or None,
        )
