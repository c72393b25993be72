"""What the status of a DeviceCompatibilityPolicy says of what is published and in use now.

Pools are looked at one by one, since of many nodes few change at a time, and what one of them adds
holds no device, so that the picture of a large cluster costs little to keep. `PolicyReport` puts
the parts together: three conditions, a matrix of kinds, and what in use breaks the policy.

Claims are counted here and never named: a policy is in no namespace, so whoever may read it need not
be allowed to know them. Who holds such a device is told in an event beside his own claim.

Source: DESIGN.md 3.3; research/allocator-features.md 3.3 and 3.5; meta/v1 Condition.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec

from allocator.compatibility.compile import CompiledPolicy, compile_policy
from allocator.compatibility.lint import lint_pool, merge_findings
from allocator.compatibility.lint_findings import Code, PolicyFinding, PoolFindings, Severity
from allocator.compatibility.matrix import Matrix, build_matrix, device_kinds
from allocator.features.co_tenant_config import UNIFORM_CONFIG_DRIVERS
from allocator.model.devices import DeviceId, Pool, PoolId, PoolState, PublishedDevice
from allocator.model.feature_gates import Features
from allocator.model.pools import build_index, whole_pool
from allocator.model.usage import Usage, gather_usage
from controllers.policies.clashes import (
    MAX_SUSPECTS,
    Clash,
    clashes,
    configuration_clashes,
)
from kube.api.policy import (
    Condition,
    Conflict,
    Conflicts,
    DeviceCompatibilityPolicy,
    DeviceCompatibilityPolicyStatus,
    MatrixRow,
)
from kube.api.resource import ResourceClaim, ResourceSlice

FEATURES: Final = Features(compatibility_groups=True)
"""Whatever the cluster's scheduler does with groups, this is what slices say."""
MAX_ROWS: Final = 32
MAX_NAME: Final = 128
MAX_MESSAGE: Final = 1024
"""Characters of a condition's message; the API takes 32768, and people read less."""
MAX_TOLD: Final = 5
"""Findings of one condition."""
MAX_EXAMPLES: Final = 10

_Key = tuple[int, tuple[frozenset[str] | None, ...]]
"""What makes a kind, over all pools: the number of its profile, and the groups that it declares."""


class ConditionType(StrEnum):
    """What is judged; the text under each is what True means."""

    VALID = "Valid"
    """No finding is an error."""
    SYMMETRIC = "Symmetric"
    """No two published devices disagree on whether they go together."""
    ACCEPTED = "Accepted"
    """It is the policy of its driver that counts."""


class Reason(StrEnum):
    """Why a condition is what it is, where no finding's code says it."""

    VALID = "Valid"
    SYMMETRIC = "Symmetric"
    NO_DEVICES = "NoDevices"
    """The driver has no complete pool."""
    NOT_EVALUATED = "NotEvaluated"
    """An error leaves it open."""
    ENFORCED = "Enforced"
    AUDITED = "Audited"
    DUPLICATE_POLICY_FOR_DRIVER = "DuplicatePolicyForDriver"
    """An older policy is about the same driver."""


_SYMMETRY: Final = frozenset({Code.ASYMMETRIC_RULE, Code.ONE_SIDED_RULE})


# --- one pool -------------------------------------------------------------------------------------


class PoolPart(msgspec.Struct, frozen=True, kw_only=True):
    """What one pool adds to what is known of a policy.

    Attributes:
        kinds: Kind to the number of its devices and the first of them.
    """

    state: PoolState
    findings: PoolFindings
    kinds: Mapping[_Key, tuple[int, DeviceId]]
    clashes: tuple[Clash, ...]


def pool_of(id_: PoolId, slices: Iterable[ResourceSlice]) -> Pool:
    """Return a pool of its slices, incomplete without any."""
    listed = build_index(slices, FEATURES)
    return whole_pool(listed, id_) if listed.by_pool else Pool(id=id_, state=PoolState.INCOMPLETE)


def usage_of(claims: Iterable[ResourceClaim]) -> Usage:
    """Return what claims hold."""
    return gather_usage(claims, FEATURES)


# --- all pools ------------------------------------------------------------------------------------


class PolicyReport:
    """What is known of one policy, pool by pool.

    Attributes:
        policy: Compiled; another text of it is another report.
        parts: Of the pools that were looked at.
    """

    def __init__(
        self,
        policy: DeviceCompatibilityPolicy,
        uniform_config_drivers: Collection[str] = UNIFORM_CONFIG_DRIVERS,
    ) -> None:
        """Compile the policy, and begin without pools.

        Args:
            policy: The policy.
            uniform_config_drivers: Drivers that reject contradicting sharing configurations.
        """
        self._uniform_config_drivers = uniform_config_drivers
        self.policy = compile_policy(policy)
        self.parts: dict[PoolId, PoolPart] = {}
        self._examples: dict[_Key, PublishedDevice] = {}
        self._matrix: tuple[Mapping[_Key, DeviceId], Matrix] | None = None

    def look(self, pool: Pool, usage: Usage) -> None:
        """Take in a pool as it is now."""
        found = device_kinds(self.policy, (*pool.devices, *pool.elsewhere))
        for kind in found:
            self._examples.setdefault((kind.profile.number, kind.groups), kind.devices[0])
        self.parts[pool.id] = PoolPart(
            state=pool.state,
            # Without claims, of whose names findings make no secret.
            findings=lint_pool(self.policy, pool, Usage()),
            kinds={
                (kind.profile.number, kind.groups): (len(kind.devices), kind.devices[0].id)
                for kind in found
            },
            clashes=(
                *clashes(self.policy, pool, usage),
                *configuration_clashes(pool.id, usage, self._uniform_config_drivers),
            ),
        )

    def forget(self, pool: PoolId) -> None:
        """Let go of a pool that is not published any more."""
        self.parts.pop(pool, None)

    def clashes(self) -> Iterator[Clash]:
        """Yield what in use breaks the policy, by pool."""
        for pool in sorted(self.parts):
            yield from self.parts[pool].clashes

    def status(
        self,
        before: DeviceCompatibilityPolicyStatus | None,
        counting: DeviceCompatibilityPolicy,
        now: str,
    ) -> DeviceCompatibilityPolicyStatus:
        """Return the status for what is known now.

        Args:
            before: As stored: a condition that stays what it was keeps its time.
            counting: The policy of the driver that counts, perhaps this one.
            now: RFC 3339, in whole seconds.
        """
        found = merge_findings(
            self.policy, [self.parts[pool].findings for pool in sorted(self.parts)]
        )
        counts, table = self._counted()
        broken = self._conflicts()
        source = self.policy.source
        judged = (
            _valid(found, self._seen()),
            _symmetric(found, self._seen()),
            _accepted(self.policy, counting, broken),
        )
        return DeviceCompatibilityPolicyStatus(
            observed_generation=source.metadata.generation,
            conditions=tuple(
                _dated(one, before, source.metadata.generation, now) for one in judged
            ),
            rules=len(source.spec.rules or ()),
            summary=_summary(table),
            matrix=tuple(_rows(table, counts)) or None,
            conflicts=broken,
        )

    def _seen(self) -> str:
        """Return what was looked at, in words; empty when there was nothing to look at."""
        states = Counter(part.state for part in self.parts.values())
        whole_, rest = states[PoolState.COMPLETE], states.total() - states[PoolState.COMPLETE]
        if not any(part.findings.has_devices for part in self.parts.values()):
            return ""
        left_out = f", {rest} that are incomplete or invalid left out" if rest else ""
        return f"{_many(whole_, 'pool')} of {self.policy.driver} looked at{left_out}"

    def _counted(self) -> tuple[Mapping[_Key, int], Matrix]:
        """Return how many devices each kind has, and the table of kinds."""
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
                PublishedDevice(id=firsts[key], device=held.device, slice=held.slice)
                for key, held in self._examples.items()
            ]
            self._matrix = firsts, build_matrix(self.policy, examples)
        return counts, self._matrix[1]

    def _conflicts(self) -> Conflicts | None:
        found = list(self.clashes())
        if not found:
            return None
        claims = {claim for one in found for held in one.holders.values() for claim in held}
        return Conflicts(
            count=len(found),
            claims=len(claims),
            namespaces=len({namespace for namespace, _ in claims}),
            examples=tuple(
                Conflict(
                    pool=one.pool.pool,
                    devices=one.devices[:MAX_SUSPECTS],
                    reason=_cut(one.reason),
                )
                for one in found[:MAX_EXAMPLES]
            ),
        )


def differs_in_more_than_counts(
    one: DeviceCompatibilityPolicyStatus | None, other: DeviceCompatibilityPolicyStatus
) -> bool:
    """Return whether a reader would act otherwise on one status than on the other.

    Nodes come and go, and with them devices of known kinds; who counts them can wait.
    """
    return one is None or _gist(one) != _gist(other)


def _gist(status: DeviceCompatibilityPolicyStatus) -> object:
    return (
        status.observed_generation,
        [(one.type, one.status, one.reason) for one in status.conditions or ()],
        [(row.name, row.compatible_with) for row in status.matrix or ()],
        status.conflicts is None,
    )


# --- the table ------------------------------------------------------------------------------------


def _summary(table: Matrix) -> str:
    if not table.kinds:
        return "no devices"
    compatible = sum(cell.is_compatible for row in table.cells for cell in row)
    pairs = f"{compatible} of {_many(len(table.kinds) ** 2, 'pair')} compatible"
    if table.omitted:
        return f"{len(table.kinds)} of {len(table.kinds) + table.omitted} kinds, {pairs}"
    return f"{_many(len(table.kinds), 'kind')}, {pairs}"


def _rows(table: Matrix, counts: Mapping[_Key, int]) -> Iterator[MatrixRow]:
    shown = table.kinds[:MAX_ROWS]
    for kind, cells in zip(shown, table.cells, strict=False):
        together = tuple(
            _cut(other.name, MAX_NAME)
            for other, cell in zip(shown, cells, strict=False)
            if cell.is_compatible
        )
        yield MatrixRow(
            name=_cut(kind.name, MAX_NAME),
            devices=counts[kind.profile.number, kind.groups],
            compatible_with=together or None,
        )


# --- conditions -----------------------------------------------------------------------------------


class _Judged(msgspec.Struct, frozen=True):
    type: ConditionType
    status: str
    reason: str
    message: str


def _valid(found: Sequence[PolicyFinding], seen: str) -> _Judged:
    told = [one for one in found if one.code not in _SYMMETRY]
    errors = [one for one in told if one.severity is Severity.ERROR]
    if errors:
        reason, message = _reason(errors[0].code), _listed(told)
        return _Judged(ConditionType.VALID, "False", reason, message)
    looked = seen or "no device of the driver is published in a complete pool; expressions compile"
    return _Judged(ConditionType.VALID, "True", Reason.VALID, _joined(looked, told))


def _symmetric(found: Sequence[PolicyFinding], seen: str) -> _Judged:
    told = [one for one in found if one.code in _SYMMETRY]
    errors = [one for one in found if one.severity is Severity.ERROR]
    if any(one.code is Code.ASYMMETRIC_RULE for one in told):
        reason = _reason(Code.ASYMMETRIC_RULE)
        return _Judged(ConditionType.SYMMETRIC, "False", reason, _listed(told))
    if errors:
        message = _joined("errors leave open what some rules say", told)
        return _Judged(ConditionType.SYMMETRIC, "Unknown", Reason.NOT_EVALUATED, message)
    if not seen:
        message = "no device of the driver is published in a complete pool"
        return _Judged(ConditionType.SYMMETRIC, "Unknown", Reason.NO_DEVICES, message)
    message = _joined("no two devices disagree on whether they go together", told)
    return _Judged(ConditionType.SYMMETRIC, "True", Reason.SYMMETRIC, message)


def _accepted(
    policy: CompiledPolicy, counting: DeviceCompatibilityPolicy, broken: Conflicts | None
) -> _Judged:
    if counting.metadata.name != policy.name:
        message = (
            f"DeviceCompatibilityPolicy {counting.metadata.name} is about {policy.driver} too, "
            "and older; this one counts for nothing while it is there"
        )
        return _Judged(ConditionType.ACCEPTED, "False", Reason.DUPLICATE_POLICY_FOR_DRIVER, message)
    if policy.is_enforced:
        held = "; they stay, and nobody may join them" if broken else ""
        message = f"in force{_in_use(broken)}{held}"
        return _Judged(ConditionType.ACCEPTED, "True", Reason.ENFORCED, message)
    message = f"refuses nothing{_in_use(broken)}" + (
        "; under Enforce they would have been refused" if broken else ""
    )
    return _Judged(ConditionType.ACCEPTED, "True", Reason.AUDITED, message)


def _in_use(broken: Conflicts | None) -> str:
    if broken is None:
        return "; nothing in use breaks it"
    held = f"{_many(broken.claims, 'claim')} in {_many(broken.namespaces, 'namespace')}"
    times = "once" if broken.count == 1 else f"{broken.count} times"
    return f"; devices in use break it {times}, held by {held}"


def _dated(
    judged: _Judged, before: DeviceCompatibilityPolicyStatus | None, generation: int, now: str
) -> Condition:
    """Return the condition, with the time since when its status is what it is."""
    known = (before.conditions if before is not None else None) or ()
    since = next(
        (
            one.last_transition_time
            for one in known
            if one.type == judged.type and one.status == judged.status
        ),
        None,
    )
    return Condition(
        type=judged.type.value,
        status=judged.status,
        reason=str(judged.reason),
        message=_cut(judged.message),
        last_transition_time=since or now,
        observed_generation=generation,
    )


def _reason(code: Code) -> str:
    """Return a code as reasons are written.

    >>> _reason(Code.ASYMMETRIC_RULE)
    'AsymmetricRule'
    """
    return code.value[0].upper() + code.value[1:]


def _joined(first: str, told: Sequence[PolicyFinding]) -> str:
    return f"{first}. {_listed(told)}" if told else first


def _listed(told: Sequence[PolicyFinding]) -> str:
    """Return findings with their codes, the worst first, each with its number of places."""
    lines = []
    for one in told[:MAX_TOLD]:
        place = "" if one.path.is_root else f"{one.path}: "
        often = f" ({one.count} places)" if one.count > 1 else ""
        lines.append(f"[{one.code.value}] {place}{one.message}{often}")
    if len(told) > MAX_TOLD:
        lines.append(f"and {len(told) - MAX_TOLD} more")
    return "; ".join(lines)


def _many(count: int, noun: str) -> str:
    """Return a count with its noun.

    >>> _many(1, "pool"), _many(2, "pool")
    ('1 pool', '2 pools')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _cut(text: str, most: int = MAX_MESSAGE) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


# --- what is written ------------------------------------------------------------------------------


def patch_of(
    policy: DeviceCompatibilityPolicy, status: DeviceCompatibilityPolicyStatus
) -> Mapping[str, Any]:
    """Return the merge patch that makes a status the stored one, of this very policy."""
    absent = dict.fromkeys(DeviceCompatibilityPolicyStatus.__struct_encode_fields__)
    return {
        "metadata": {"uid": policy.metadata.uid},
        "status": {**absent, **msgspec.to_builtins(status)},
    }
