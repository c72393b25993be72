"""The compatible kinds of a driver's devices, as a table, and as groups if that is possible.

Devices that a policy does not distinguish are one kind, wherever they are. A cell is about a device of
one kind and another device of the other kind that are co-located; whether counters suffice for both is
left to the findings (`allocator.compatibility.lint`).

Source: docs/compatibility.md; KEP-5963 for groups.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from itertools import product
from typing import Final

import msgspec

from allocator.compatibility.compile import CompiledPolicy, Profile, compile_policy
from allocator.compatibility.pairs import accepts, agree, counter_sets_of
from allocator.model.devices import DeviceId, PublishedDevice
from allocator.model.outcome import Reason, RejectionReason
from kube.api.policy import MAX_GROUPS, DeviceCompatibilityPolicy, DeviceCompatibilityPolicySpec

MAX_KINDS: Final = 64
"""Rows of a matrix, and kinds from which groups are derived."""
MAX_FACETS: Final = 256
_MAX_NAME: Final = 63
_LIKE: Final = " like "

Groups = frozenset[str] | None


class Relation(StrEnum):
    """The relation between two kinds."""

    COMPATIBLE = "compatible"
    INCOMPATIBLE = "incompatible"
    ONE_SIDED = "oneSided"
    """Only one of the two has a rule that excludes the other."""
    ERROR = "error"
    """A rule gave no result, so they are incompatible."""


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """The relation between two kinds, and its reason; none if they are compatible."""

    relation: Relation
    reason: str = ""

    @property
    def is_compatible(self) -> bool:
        """Devices of the two kinds may be in use together."""
        return self.relation is Relation.COMPATIBLE


class Kind(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Devices that a policy does not distinguish.

    Attributes:
        name: The names of the rules that apply; else of the groups that slices declare; else
            `undeclared`. Unique in a matrix.
        groups: Distinct groups of its consumptions, as slices declare them.
        devices: The devices of the kind, sorted.
    """

    name: str
    profile: Profile
    groups: tuple[Groups, ...]
    devices: tuple[PublishedDevice, ...]


class Matrix(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The kinds of one driver and their symmetric relations.

    Attributes:
        policy: Its name; empty for the groups that slices declare.
        kinds: The kinds by name, for rows and columns.
        cells: The relations, by row, then column.
        omitted: Kinds beyond `MAX_KINDS`.
    """

    driver: str
    policy: str
    kinds: tuple[Kind, ...]
    cells: tuple[tuple[Cell, ...], ...]
    omitted: int = 0

    def cell(self, first: str, other: str) -> Cell:
        """Return the relation between two kinds, by name.

        Raises:
            ValueError: There is no kind of that name.
        """
        names = [kind.name for kind in self.kinds]
        return self.cells[names.index(first)][names.index(other)]


def build_matrix(policy: CompiledPolicy | None, devices: Sequence[PublishedDevice]) -> Matrix:
    """Return the kinds of devices and their relations.

    Args:
        policy: The policy; None for the groups that slices declare.
        devices: The devices; those of other drivers than the policy's, or than the first device's,
            are left out.
    """
    evaluated_policy = policy or empty_policy(devices[0].id.driver if devices else "")
    kinds = device_kinds(evaluated_policy, devices)
    shown_kinds = kinds[:MAX_KINDS]
    return Matrix(
        driver=evaluated_policy.driver,
        policy=policy.name if policy is not None else "",
        kinds=shown_kinds,
        cells=_cells(evaluated_policy, shown_kinds),
        omitted=len(kinds) - len(shown_kinds),
    )


@lru_cache(maxsize=16)
def empty_policy(driver: str) -> CompiledPolicy:
    """Return a policy without rules, so that only the groups of slices count."""
    return compile_policy(
        DeviceCompatibilityPolicy(spec=DeviceCompatibilityPolicySpec(driver=driver or "none"))
    )


def device_kinds(policy: CompiledPolicy, devices: Iterable[PublishedDevice]) -> tuple[Kind, ...]:
    """Return the kinds of devices, in the order of the policy's rules; the undeclared last."""
    devices_by_kind: dict[tuple[int, tuple[Groups, ...]], list[PublishedDevice]] = {}
    profiles: dict[int, Profile] = {}
    for device in devices:
        if device.id.driver == policy.driver:
            profile = policy.profile(device)
            profiles[profile.number] = profile
            devices_by_kind.setdefault((profile.number, _declared_groups(device)), []).append(
                device
            )
    for members in devices_by_kind.values():
        members.sort(key=lambda device: device.id)
    names = [_name(profiles[number], groups) for number, groups in devices_by_kind]
    firsts = [members[0].id for members in devices_by_kind.values()]
    for of_first in ("{0.device}", "{0.pool}/{0.device}"):
        often = Counter(names)
        names = [
            name if often[name] == 1 else f"{name.split(_LIKE)[0]}{_LIKE}{of_first.format(first)}"
            for name, first in zip(names, firsts, strict=True)
        ]
    named_kinds = [
        Kind(name=name, profile=profiles[number], groups=groups, devices=tuple(members))
        for name, ((number, groups), members) in zip(names, devices_by_kind.items(), strict=True)
    ]
    order = {rule.name: place for place, rule in enumerate(policy.rules)}

    def place(kind: Kind) -> tuple[bool, list[int], str]:
        rules = kind.profile.rules
        return not rules, [order[rule] for rule in rules], kind.name

    return tuple(sorted(named_kinds, key=place))


def _declared_groups(device: PublishedDevice) -> tuple[Groups, ...]:
    groups = {
        frozenset(consumption.compatibility_groups or ()) or None
        for consumption in device.device.consumes_counters or ()
    }
    return tuple(sorted(groups, key=lambda names: sorted(names or ())))


def _name(profile: Profile, groups: tuple[Groups, ...]) -> str:
    if profile.rules:
        return "+".join(profile.rules)
    if any(groups):
        return " / ".join(",".join(sorted(names)) if names else "none" for names in groups)
    return "undeclared"


# --- cells ----------------------------------------------------------------------------------------


def _cells(policy: CompiledPolicy, shown_kinds: Sequence[Kind]) -> tuple[tuple[Cell, ...], ...]:
    """Return the table, each pair evaluated once and written on both sides of the diagonal."""
    half = [
        [_cell(policy, other, kind) for other in shown_kinds[: row + 1]]
        for row, kind in enumerate(shown_kinds)
    ]
    places = range(len(shown_kinds))
    return tuple(tuple(half[max(at)][min(at)] for at in product([row], places)) for row in places)


def _cell(policy: CompiledPolicy, kind: Kind, other: Kind) -> Cell:
    errors = [*_errors(kind, other), *(() if kind is other else _errors(other, kind))]
    if errors:
        return Cell(relation=Relation.ERROR, reason=errors[0])
    group_conflict = _group_conflict(policy, kind, other)
    if group_conflict:
        return Cell(relation=Relation.INCOMPATIBLE, reason=group_conflict)
    if agree(kind.profile, other.profile):
        return Cell(relation=Relation.COMPATIBLE)
    refusals = [
        (owner, target)
        for owner, target in dict.fromkeys(((kind, other), (other, kind)))
        if not accepts(owner.profile, target.profile)
    ]
    if len(refusals) > 1:
        reason = f"the rules of {kind.name} and {other.name} do not accept each other"
        return Cell(relation=Relation.INCOMPATIBLE, reason=reason)
    ((owner, target),) = refusals
    refused = f"other {owner.name} devices" if owner is target else target.name
    return Cell(
        relation=Relation.INCOMPATIBLE if owner is target else Relation.ONE_SIDED,
        reason=f"the rule of {owner.name} does not accept {refused}",
    )


def _errors(owner: Kind, target: Kind) -> Iterator[str]:
    for doubt in owner.profile.doubts:
        yield f"rule {doubt.rule} gives no result on {owner.name}: {doubt.why}"
    for number in owner.profile.accepts:
        answer = target.profile.answers[number]
        if answer.kind is not None:
            yield f"the rule of {owner.name} gives no result on {target.name}: {answer.why}"


def _group_conflict(policy: CompiledPolicy, kind: Kind, other: Kind) -> str:
    """Return the groups that make two kinds incompatible; empty when they do not."""
    pairs = list(product(kind.groups, other.groups))
    if policy.has_groups:
        pairs.append((kind.profile.groups, other.profile.groups))
    for left, right in pairs:
        if not share_groups(left, right, isolates=policy.isolates):
            groups = " and ".join(filter(None, (_format_groups(left), _format_groups(right))))
            if left is None or right is None:
                return f"compatibility groups {groups} beside a device that declares none"
            return f"compatibility groups {groups} have none in common"
    return ""


def share_groups(first_groups: Groups, other: Groups, *, isolates: bool) -> bool:
    """Return True if groups allow two devices of one counter set to be in use together."""
    if first_groups is None or other is None:
        return first_groups is other or not isolates
    return bool(first_groups & other)


def _format_groups(groups: Groups) -> str:
    """Return groups as a set: `{mig, soft}`; empty if none are declared."""
    return "" if groups is None else f"{{{', '.join(sorted(groups))}}}"


# --- text -----------------------------------------------------------------------------------------

_SIGNS: Final[Mapping[Relation, str]] = {
    Relation.COMPATIBLE: "✓",
    Relation.INCOMPATIBLE: "✗",
    Relation.ONE_SIDED: "✗?",
    Relation.ERROR: "!",
}


_LEGEND: Final[Mapping[Relation, str]] = {
    Relation.COMPATIBLE: "may be in use together",
    Relation.INCOMPATIBLE: "may not",
    Relation.ONE_SIDED: "may not, by the rule of one side only",
    Relation.ERROR: "may not, because a rule gives no result",
}


def render_matrix(table: Matrix) -> str:
    """Return a Markdown table that is aligned for plain text, with a legend of its signs."""
    names = [kind.name for kind in table.kinds]
    rows = [["", *names, "devices"]]
    rows += [
        [kind.name, *(_SIGNS[cell.relation] for cell in cells), str(len(kind.devices))]
        for kind, cells in zip(table.kinds, table.cells, strict=True)
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    rule = "| " + " | ".join("-" * max(width, 3) for width in widths) + " |"
    omitted_row = [f"{table.omitted} more kinds"] if table.omitted else []
    relations = {cell.relation for cells in table.cells for cell in cells}
    legend = ", ".join(
        f"{sign} {_LEGEND[relation]}" for relation, sign in _SIGNS.items() if relation in relations
    )
    return "\n".join([lines[0], rule, *lines[1:], *omitted_row, legend]) + "\n"


def list_reasons(table: Matrix) -> tuple[str, ...]:
    """Return the reasons that kinds are incompatible, one line per pair: `mig, mps: the rule of mig ...`."""
    lines = []
    for row, kind in enumerate(table.kinds):
        for column in range(row + 1):
            cell = table.cells[row][column]
            if not cell.is_compatible:
                lines.append(f"{table.kinds[column].name}, {kind.name}: {cell.reason}")
    return tuple(lines)


# --- groups ---------------------------------------------------------------------------------------


def as_groups(
    policy: CompiledPolicy, devices: Sequence[PublishedDevice]
) -> Mapping[DeviceId, tuple[str, ...]] | RejectionReason:
    """Return groups for slices that are equivalent to a policy, or the reason for having none.

    KEP-5963 allows a set of devices to be used together when all have one group in common. So each
    maximal set of compatible devices needs a group of its own, whose members are exactly that set;
    no other groups help. There are none where a device is in more maximal sets than it may have
    groups. Devices get no groups when all of them are compatible.
    """
    if policy.is_pool_wide:
        return _no(
            "scope Pool relates devices of different counter sets, which groups cannot express"
        )
    kinds = device_kinds(policy, devices)
    for kind in kinds:
        if not all(map(counter_sets_of, kind.devices)):
            return _no(f"devices of {kind.name} consume no counters, so they cannot declare groups")
        if len(kind.groups) > 1:
            return _no(f"devices of {kind.name} declare different groups on different sets")
    nodes = _nodes(policy, [kind for kind in kinds if kind.profile.is_usable])
    if len(nodes) > MAX_KINDS:
        return _no(f"more than {MAX_KINDS} kinds of devices")
    facets = _facets(policy, nodes)
    if facets is None:
        return _no(f"more than {MAX_FACETS} maximal sets of compatible kinds")
    if len(facets) <= 1:
        return {device.id: () for node in nodes for device in node.devices}
    named_facets = _named_facets(facets)
    groups: dict[DeviceId, tuple[str, ...]] = {}
    for node in nodes:
        own = tuple(sorted(name for name, facet in named_facets.items() if node in facet))
        if len(own) > MAX_GROUPS:
            return _no(
                f"{node.name} is in {len(own)} maximal sets of compatible kinds "
                f"({', '.join(own)}); a device can have at most {MAX_GROUPS} groups"
            )
        groups |= {device.id: own for device in node.devices}
    return dict(sorted(groups.items()))


def _no(why: str) -> RejectionReason:
    return RejectionReason(reason=Reason.GROUPS, subject=why)


class _Node(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A kind; or, of a kind with devices that exclude each other, one device per counter set."""

    name: str
    kind: Kind
    devices: tuple[PublishedDevice, ...]


def _nodes(policy: CompiledPolicy, kinds: Sequence[Kind]) -> list[_Node]:
    nodes = []
    for kind in kinds:
        if _cell(policy, kind, kind).is_compatible:
            nodes.append(_Node(name=kind.name, kind=kind, devices=kind.devices))
            continue
        layers: list[list[PublishedDevice]] = []
        device_counts: dict[tuple[str, str, str], int] = {}
        for device in kind.devices:
            places = [(device.id.driver, device.id.pool, name) for name in counter_sets_of(device)]
            layer = max(device_counts.get(place, 0) for place in places)
            device_counts |= dict.fromkeys(places, layer + 1)
            if layer == len(layers):
                layers.append([])
            layers[layer].append(device)
        nodes += [
            _Node(
                name=kind.name if len(layers) == 1 else f"{kind.name}-{number}",
                kind=kind,
                devices=tuple(layer),
            )
            for number, layer in enumerate(layers)
        ]
    return nodes


_Facet = frozenset[_Node]


def _facets(policy: CompiledPolicy, nodes: Sequence[_Node]) -> list[_Facet] | None:
    """Return the maximal sets of compatible nodes; None for too many.

    Rules compare pairs, so these are cliques of the graph of compatible pairs; groups require one
    that all have, so they are the cliques among the members of each group.
    """
    pairs = {
        node: {
            other
            for other in nodes
            if other is not node and _cell(policy, node.kind, other.kind).is_compatible
        }
        for node in nodes
    }
    cliques: set[_Facet] = set()
    for members in _members_by_group(policy, nodes):
        for clique in _cliques({node: pairs[node] & members for node in members}):
            cliques.add(clique)
            if len(cliques) > MAX_FACETS:
                return None
    order = {node: place for place, node in enumerate(nodes)}
    largest = [clique for clique in cliques if not any(clique < other for other in cliques)]
    return sorted(largest, key=lambda facet: sorted(order[node] for node in facet))


def _members_by_group(policy: CompiledPolicy, nodes: Sequence[_Node]) -> Iterator[set[_Node]]:
    """Yield the nodes that have each group, and those that have none; all if none is declared."""

    def options(groups: Sequence[Groups]) -> list[set[int]]:
        undeclared_places = {place for place, own in enumerate(groups) if own is None}
        joining = set() if policy.isolates else undeclared_places
        names = sorted({name for own in groups for name in own or ()})
        sharing = [
            {place for place, own in enumerate(groups) if own is not None and name in own}
            for name in names
        ]
        # Rules with disjoint groups leave a device none to share: it meets only undeclared ones.
        alone = [{place} for place, own in enumerate(groups) if own == frozenset()]
        return [undeclared_places, *(members | joining for members in (*sharing, *alone))]

    native = options([node.kind.groups[0] for node in nodes])
    ruled_options = options([node.kind.profile.groups for node in nodes])
    for left, right in product(native, ruled_options):
        yield {nodes[place] for place in left & right}


def _cliques(graph: Mapping[_Node, set[_Node]]) -> Iterator[_Facet]:
    """Yield the maximal cliques of a graph (Bron and Kerbosch 1973, with a pivot)."""
    stack: list[tuple[_Facet, set[_Node], set[_Node]]] = [(frozenset(), set(graph), set())]
    while stack:
        clique, open_, done_nodes = stack.pop()
        if not open_:
            if not done_nodes and clique:
                yield clique
            continue
        pivot = max(open_ | done_nodes, key=lambda node: (len(graph[node] & open_), node.name))
        for node in sorted(open_ - graph[pivot], key=lambda node: node.name):
            stack.append((clique | {node}, open_ & graph[node], done_nodes & graph[node]))
            open_ = open_ - {node}
            done_nodes = done_nodes | {node}


def _named_facets(facets: Sequence[_Facet]) -> dict[str, _Facet]:
    """Return the sets by unique names of the format that the API requires."""
    facets_by_name: dict[str, _Facet] = {}
    for number, facet in enumerate(facets):
        joined_name = "-".join(sorted(node.name.lower() for node in facet))
        name = re.sub(r"[^a-z0-9]+", "-", joined_name).strip("-")
        if not name or len(name) > _MAX_NAME or name in facets_by_name:
            name = f"group-{number}"
        facets_by_name[name] = facet
    return facets_by_name
