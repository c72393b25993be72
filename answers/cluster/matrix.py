"""The compatibility of each driver's devices, as a matrix or as groups. Pure."""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from allocator.cluster.cluster import Cluster
from allocator.compatibility.compile import CompiledPolicy
from allocator.compatibility.lint import lint_pools
from allocator.compatibility.lint_findings import PolicyFinding
from allocator.compatibility.matrix import Matrix, as_groups, build_matrix, empty_policy
from allocator.model.devices import Pool, PoolId, PublishedDevice
from allocator.model.feature_gates import Features
from allocator.model.gated_pools import COMPATIBILITY_GATE, declares_groups
from allocator.model.outcome import RejectionReason


class DriverCompatibility(msgspec.Struct, frozen=True, kw_only=True):
    """One driver's devices, and the policy about them.

    Attributes:
        policy: None where only the groups count that slices declare.
        findings: The findings about the devices or the policy.
        disabled_gate: The feature gate without which groups of these devices keep them from use;
            empty where it is on, or no device declares groups.
    """

    driver: str
    policy: CompiledPolicy | None
    devices: tuple[PublishedDevice, ...]
    findings: tuple[PolicyFinding, ...] = ()
    disabled_gate: str = ""

    @property
    def matrix(self) -> Matrix:
        """The kinds of devices and their relations."""
        return build_matrix(self.policy, self.devices)


# --- documents ------------------------------------------------------------------------------------


class KindDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Devices that a policy does not distinguish."""

    name: str
    devices: tuple[str, ...]


class PairDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The relation of two kinds, and its reason; empty if they are compatible."""

    kind: str
    other_kind: str
    relation: str
    reason: str


class PolicyFindingDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A finding about a policy, or about the groups of slices.

    Attributes:
        path: The path in the policy; empty if the finding is about devices.
        count: The number of places that the finding holds for: pairs of kinds or devices, in each
            pool.
    """

    severity: str
    code: str
    message: str
    path: str
    fix: str
    devices: tuple[str, ...]
    count: int


class MatrixDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The matrix of one driver.

    Attributes:
        policy: Its name; empty for the groups that slices declare.
        omitted: The number of kinds that are left out.
        disabled_gate: The feature gate that is off and without which devices with groups are not
            allocated; empty where there is none.
    """

    driver: str
    policy: str
    kinds: tuple[KindDocument, ...]
    pairs: tuple[PairDocument, ...]
    omitted: int
    findings: tuple[PolicyFindingDocument, ...]
    disabled_gate: str


class GroupsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The groups of one driver's devices that are equivalent to its policy.

    Attributes:
        devices: Groups by device.
        reason: The reason there are no such groups; empty if there are.
    """

    driver: str
    devices: Mapping[str, tuple[str, ...]]
    reason: str


class MatrixAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `drawbridge matrix -o json`."""

    drivers: tuple[MatrixDocument, ...]


class GroupsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `drawbridge matrix --as-groups -o json`."""

    drivers: tuple[GroupsDocument, ...]


# --- the answer -----------------------------------------------------------------------------------


def compatibility_by_driver(
    policies: Iterable[CompiledPolicy], devices: Iterable[PublishedDevice], features: Features
) -> Iterator[DriverCompatibility]:
    """Yield policies with their devices by driver, then drivers with devices that declare groups.

    A policy that an older one of its driver outranks is included: its author wants to see it.

    Args:
        features: Feature gates of the cluster.
    """

    def disabled_gate(members: Iterable[PublishedDevice]) -> str:
        is_hidden = not features.compatibility_groups and any(
            declares_groups(member.device) for member in members
        )
        return COMPATIBILITY_GATE if is_hidden else ""

    by_driver: dict[str, list[PublishedDevice]] = {}
    for device in devices:
        by_driver.setdefault(device.id.driver, []).append(device)
    governed_drivers = set()
    for policy in sorted(policies, key=lambda policy: (policy.driver, policy.name)):
        governed_drivers.add(policy.driver)
        own = tuple(by_driver.get(policy.driver, ()))
        yield DriverCompatibility(
            driver=policy.driver, policy=policy, devices=own, disabled_gate=disabled_gate(own)
        )
    for driver, members in sorted(by_driver.items()):
        if driver not in governed_drivers and any(
            declares_groups(member.device) for member in members
        ):
            yield DriverCompatibility(
                driver=driver,
                policy=None,
                devices=tuple(members),
                disabled_gate=disabled_gate(members),
            )


def with_findings(compatibility: DriverCompatibility, cluster: Cluster) -> DriverCompatibility:
    """Return a driver's matrix with the findings about its policy and devices."""
    pools: dict[PoolId, Pool] = {}
    for node in sorted(cluster.nodes):
        for pool in cluster.node_devices(node).pools:
            if pool.id.driver == compatibility.driver:
                pools.setdefault(pool.id, pool)
    findings = lint_pools(compatibility.policy, tuple(pools.values()), cluster.usage)
    return msgspec.structs.replace(compatibility, findings=findings)


def equivalent_groups(compatibility: DriverCompatibility) -> GroupsDocument:
    """Return the groups that are equivalent to a policy, or the reason there are none."""
    driver = compatibility.driver
    groups = as_groups(compatibility.policy or empty_policy(driver), compatibility.devices)
    if isinstance(groups, RejectionReason):
        return GroupsDocument(driver=driver, devices={}, reason=groups.detail)
    devices = {str(device): names for device, names in groups.items()}
    return GroupsDocument(driver=driver, devices=devices, reason="")


def matrix_document(compatibility: DriverCompatibility) -> MatrixDocument:
    """Return a matrix with its findings, for scripts."""
    table = compatibility.matrix
    return MatrixDocument(
        driver=compatibility.driver,
        policy=table.policy,
        kinds=tuple(
            KindDocument(name=kind.name, devices=tuple(str(device.id) for device in kind.devices))
            for kind in table.kinds
        ),
        pairs=tuple(
            PairDocument(
                kind=kind.name,
                other_kind=table.kinds[column].name,
                relation=table.cells[row][column].relation,
                reason=table.cells[row][column].reason,
            )
            for row, kind in enumerate(table.kinds)
            for column in range(row + 1)
        ),
        omitted=table.omitted,
        findings=tuple(map(_finding_document, compatibility.findings)),
        disabled_gate=compatibility.disabled_gate,
    )


def _finding_document(finding: PolicyFinding) -> PolicyFindingDocument:
    return PolicyFindingDocument(
        severity=finding.severity,
        code=finding.code,
        message=finding.message,
        path=str(finding.path),
        fix=finding.fix,
        devices=tuple(map(str, finding.devices)),
        count=finding.count,
    )
