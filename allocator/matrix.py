"""Which kinds of a driver's devices go together, as a table, and as groups where groups can say it.

Devices that a policy treats alike are one kind, wherever they are. A cell asks what would happen if
a device of the one kind and another of the other kind shared their hardware; whether counters leave
room for both is another question, and the validator's (allocator/policy_findings.py).

Source: DESIGN.md 3.3; research/allocator-features.md 3.7; KEP-5963 for groups.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from itertools import product
from typing import Final

import msgspec

from allocator.core.model import DeviceId, PublishedDevice
from allocator.core.neighbours import accepts, agree, sets_of
from allocator.core.outcome import Reason, Refusal
from allocator.core.rules import CompiledPolicy, Profile, compiled
from kube.api.policy import DeviceCompatibilityPolicy, DeviceCompatibilityPolicySpec

MAX_KINDS: Final = 64
"""Rows of a matrix, and kinds from which groups are derived."""
MAX_GROUPS: Final = 2
"""Names in one consumption (API limit of 1.37)."""
MAX_FACETS: Final = 256
_MAX_NAME: Final = 63
_LIKE: Final = " like "

Groups = frozenset[str] | None


class Relation(StrEnum):
    """What holds between two kinds."""

    COMPATIBLE = "compatible"
    INCOMPATIBLE = "incompatible"
    ONE_SIDED = "oneSided"
    """Only one of the two has a rule that says no."""
    ERROR = "error"
    """A rule gave no answer, which keeps them apart."""


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """What holds between two kinds, and why; no reason where they are compatible."""

    relation: Relation
    reason: str = ""

    @property
    def is_compatible(self) -> bool:
        """Devices of the two kinds may be in use together."""
        return self.relation is Relation.COMPATIBLE


class Kind(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Devices that are treated alike.

    Attributes:
        name: Of the rules that apply; else of the groups that slices declare; else `undeclared`.
            Unique in a matrix.
        groups: Distinct groups of its consumptions, as slices declare them.
        devices: Sorted.
    """

    name: str
    profile: Profile
    groups: tuple[Groups, ...]
    devices: tuple[PublishedDevice, ...]


class Matrix(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The kinds of one driver, in both directions the same.

    Attributes:
        policy: Its name; empty for what slices say by themselves.
        kinds: By name; rows and columns.
        cells: By row, then column.
        omitted: Kinds beyond `MAX_KINDS`.
    """

    driver: str
    policy: str
    kinds: tuple[Kind, ...]
    cells: tuple[tuple[Cell, ...], ...]
    omitted: int = 0

    def cell(self, one: str, other: str) -> Cell:
        """Return what holds between two kinds by name.

        Raises:
            ValueError: There is no kind of that name.
        """
        names = [kind.name for kind in self.kinds]
        return self.cells[names.index(one)][names.index(other)]


def matrix(policy: CompiledPolicy | None, devices: Sequence[PublishedDevice]) -> Matrix:
    """Return what goes together.

    Args:
        policy: None to ask what the slices' own groups say.
        devices: Those of other drivers than the policy's, or than the first device's, are left out.
    """
    judged = policy or silent(devices[0].id.driver if devices else "")
    found = kinds(judged, devices)
    shown = found[:MAX_KINDS]
    return Matrix(
        driver=judged.driver,
        policy=policy.name if policy is not None else "",
        kinds=shown,
        cells=_cells(judged, shown),
        omitted=len(found) - len(shown),
    )


@lru_cache(maxsize=16)
def silent(driver: str) -> CompiledPolicy:
    """Return a policy without rules, so that only what slices declare counts."""
    return compiled(
        DeviceCompatibilityPolicy(spec=DeviceCompatibilityPolicySpec(driver=driver or "none"))
    )


def kinds(policy: CompiledPolicy, devices: Iterable[PublishedDevice]) -> tuple[Kind, ...]:
    """Return the kinds of devices that a policy tells apart, in the order of its rules; the undeclared last."""
    found: dict[tuple[int, tuple[Groups, ...]], list[PublishedDevice]] = {}
    profiles: dict[int, Profile] = {}
    for published in devices:
        if published.id.driver == policy.driver:
            profile = policy.profile(published)
            profiles[profile.number] = profile
            found.setdefault((profile.number, _declared(published)), []).append(published)
    for members in found.values():
        members.sort(key=lambda published: published.id)
    names = [_name(profiles[number], groups) for number, groups in found]
    firsts = [members[0].id for members in found.values()]
    for of_first in ("{0.device}", "{0.pool}/{0.device}"):
        often = Counter(names)
        names = [
            name if often[name] == 1 else f"{name.split(_LIKE)[0]}{_LIKE}{of_first.format(first)}"
            for name, first in zip(names, firsts, strict=True)
        ]
    made = [
        Kind(name=name, profile=profiles[number], groups=groups, devices=tuple(members))
        for name, ((number, groups), members) in zip(names, found.items(), strict=True)
    ]
    order = {rule.name: place for place, rule in enumerate(policy.rules)}

    def place(kind: Kind) -> tuple[bool, list[int], str]:
        rules = kind.profile.rules
        return not rules, [order[rule] for rule in rules], kind.name

    return tuple(sorted(made, key=place))


def _declared(published: PublishedDevice) -> tuple[Groups, ...]:
    groups = {
        frozenset(taken.compatibility_groups or ()) or None
        for taken in published.device.consumes_counters or ()
    }
    return tuple(sorted(groups, key=lambda each: sorted(each or ())))


def _name(profile: Profile, groups: tuple[Groups, ...]) -> str:
    if profile.rules:
        return "+".join(profile.rules)
    if any(groups):
        return " / ".join(",".join(sorted(each)) if each else "none" for each in groups)
    return "undeclared"


# --- cells ----------------------------------------------------------------------------------------


def _cells(policy: CompiledPolicy, shown: Sequence[Kind]) -> tuple[tuple[Cell, ...], ...]:
    """Return the table, each pair judged once and written on both sides of the diagonal."""
    half = [
        [_cell(policy, other, one) for other in shown[: row + 1]] for row, one in enumerate(shown)
    ]
    places = range(len(shown))
    return tuple(tuple(half[max(at)][min(at)] for at in product([row], places)) for row in places)


def _cell(policy: CompiledPolicy, one: Kind, other: Kind) -> Cell:
    errors = [*_errors(one, other), *(() if one is other else _errors(other, one))]
    if errors:
        return Cell(relation=Relation.ERROR, reason=errors[0])
    groups = _groups_say(policy, one, other)
    if groups:
        return Cell(relation=Relation.INCOMPATIBLE, reason=groups)
    if agree(one.profile, other.profile):
        return Cell(relation=Relation.COMPATIBLE)
    refusing = [
        f"{owner.name} does not accept its like"
        if owner is asked
        else f"{owner.name} accepts only devices matching its rule; {asked.name} does not match"
        for owner, asked in dict.fromkeys(((one, other), (other, one)))
        if not accepts(owner.profile, asked.profile)
    ]
    is_one_sided = len(refusing) == 1 and one is not other
    relation = Relation.ONE_SIDED if is_one_sided else Relation.INCOMPATIBLE
    return Cell(relation=relation, reason=refusing[0])


def _errors(owner: Kind, asked: Kind) -> Iterator[str]:
    for doubt in owner.profile.doubts:
        yield f"rule {doubt.rule} gives no answer on {owner.name}: {doubt.why}"
    for number in owner.profile.accepts:
        answer = asked.profile.answers[number]
        if answer.kind is not None:
            yield f"rule of {owner.name} gives no answer on {asked.name}: {answer.why}"


def _groups_say(policy: CompiledPolicy, one: Kind, other: Kind) -> str:
    """Return why groups keep two kinds apart; empty when they do not."""
    pairs = list(product(one.groups, other.groups))
    if policy.has_groups:
        pairs.append((one.profile.groups, other.profile.groups))
    for left, right in pairs:
        if not share_groups(left, right, isolates=policy.isolates):
            return f"compatibility groups: {_shown(left)} beside {_shown(right)}"
    return ""


def share_groups(one: Groups, other: Groups, *, isolates: bool) -> bool:
    """Return whether two devices on one set may both be there by their groups alone."""
    if one is None or other is None:
        return one is other or not isolates
    return bool(one & other)


def _shown(groups: Groups) -> str:
    return f"{{{', '.join(sorted(groups or ()))}}}"


# --- text -----------------------------------------------------------------------------------------

_SIGNS: Final[Mapping[Relation, str]] = {
    Relation.COMPATIBLE: "✓",
    Relation.INCOMPATIBLE: "✗",
    Relation.ONE_SIDED: "✗?",
    Relation.ERROR: "!",
}


def text(table: Matrix) -> str:
    """Return a Markdown table, aligned so that it reads as plain text as well.

    ✓ together, ✗ apart, ✗? apart by a rule of one side only, ! apart because a rule gave no answer.
    """
    names = [kind.name for kind in table.kinds]
    rows = [["", *names, "devices"]]
    rows += [
        [kind.name, *(_SIGNS[cell.relation] for cell in cells), str(len(kind.devices))]
        for kind, cells in zip(table.kinds, table.cells, strict=True)
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(each.ljust(width) for each, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    rule = "| " + " | ".join("-" * max(width, 3) for width in widths) + " |"
    omitted = [f"{table.omitted} more kinds"] if table.omitted else []
    return "\n".join([lines[0], rule, *lines[1:], *omitted]) + "\n"


def reasons(table: Matrix) -> tuple[str, ...]:
    """Return why kinds are apart, one line per pair: `mig, mps: rule ...`."""
    told = []
    for row, one in enumerate(table.kinds):
        for column in range(row + 1):
            cell = table.cells[row][column]
            if not cell.is_compatible:
                told.append(f"{table.kinds[column].name}, {one.name}: {cell.reason}")
    return tuple(told)


# --- groups ---------------------------------------------------------------------------------------


def as_groups(
    policy: CompiledPolicy, devices: Sequence[PublishedDevice]
) -> Mapping[DeviceId, tuple[str, ...]] | Refusal:
    """Return groups for slices that say exactly what a policy says, or why there are none.

    KEP-5963 admits a set of devices when one group is common to all. So each largest set of devices
    that may be in use together has to have a group of its own, whose members are just that set; no
    other groups help. A device that is in more of these sets than it may have groups has no answer.
    All devices get no groups when they all go together.
    """
    if policy.is_pool_wide:
        return _no("scope Pool relates devices of different counter sets, and groups do not")
    found = kinds(policy, devices)
    for kind in found:
        if not all(sets_of(each) for each in kind.devices):
            return _no(f"devices of {kind.name} consume no counters, so they cannot declare groups")
        if len(kind.groups) > 1:
            return _no(f"devices of {kind.name} declare different groups on different sets")
    nodes = _nodes(policy, [kind for kind in found if kind.profile.is_usable])
    if len(nodes) > MAX_KINDS:
        return _no(f"more than {MAX_KINDS} kinds of devices")
    facets = _facets(policy, nodes)
    if facets is None:
        return _no(f"more than {MAX_FACETS} sets of devices that go together")
    if len(facets) <= 1:
        return {each.id: () for node in nodes for each in node.devices}
    named = _named(facets)
    groups: dict[DeviceId, tuple[str, ...]] = {}
    for node in nodes:
        own = tuple(sorted(name for name, facet in named.items() if node in facet))
        if len(own) > MAX_GROUPS:
            return _no(
                f"{node.name} goes together with {len(own)} sets of kinds that exclude each other "
                f"({', '.join(own)}); a device has at most {MAX_GROUPS} groups"
            )
        groups |= {each.id: own for each in node.devices}
    return dict(sorted(groups.items()))


def _no(why: str) -> Refusal:
    return Refusal(reason=Reason.GROUPS, detail=why)


class _Node(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A kind, or of a kind whose devices exclude each other, one device per counter set."""

    name: str
    kind: Kind
    devices: tuple[PublishedDevice, ...]


def _nodes(policy: CompiledPolicy, found: Sequence[Kind]) -> list[_Node]:
    nodes = []
    for kind in found:
        if _cell(policy, kind, kind).is_compatible:
            nodes.append(_Node(name=kind.name, kind=kind, devices=kind.devices))
            continue
        layers: list[list[PublishedDevice]] = []
        taken: dict[tuple[str, str, str], int] = {}
        for each in kind.devices:
            places = [(each.id.driver, each.id.pool, name) for name in sets_of(each)]
            layer = max(taken.get(place, 0) for place in places)
            taken |= dict.fromkeys(places, layer + 1)
            if layer == len(layers):
                layers.append([])
            layers[layer].append(each)
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
    """Return the largest sets of nodes that may all be in use together; None for too many.

    Rules compare pairs, so these would be the cliques of the graph of pairs; groups ask for one that
    all have, so these are the cliques among the members of each group.
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
    for members in _meetings(policy, nodes):
        for clique in _cliques({node: pairs[node] & members for node in members}):
            cliques.add(clique)
            if len(cliques) > MAX_FACETS:
                return None
    order = {node: place for place, node in enumerate(nodes)}
    largest = [one for one in cliques if not any(one < other for other in cliques)]
    return sorted(largest, key=lambda facet: sorted(order[node] for node in facet))


def _meetings(policy: CompiledPolicy, nodes: Sequence[_Node]) -> Iterator[set[_Node]]:
    """Yield who may meet under each group, and under none; everybody where none is declared."""

    def options(groups: Sequence[Groups]) -> list[set[int]]:
        names = sorted({name for each in groups for name in each or ()})
        wanted: list[str | None] = [None, *names]
        return [
            {
                place
                for place, each in enumerate(groups)
                if (each is None and (name is None or not policy.isolates))
                or (each is not None and name in each)
            }
            for name in wanted
        ]

    native = options([node.kind.groups[0] for node in nodes])
    ruled = options([node.kind.profile.groups for node in nodes])
    for left, right in product(native, ruled):
        yield {nodes[place] for place in left & right}


def _cliques(graph: Mapping[_Node, set[_Node]]) -> Iterator[_Facet]:
    """Yield the maximal cliques of a graph (Bron and Kerbosch 1973, with a pivot)."""
    stack: list[tuple[_Facet, set[_Node], set[_Node]]] = [(frozenset(), set(graph), set())]
    while stack:
        clique, open_, done = stack.pop()
        if not open_:
            if not done and clique:
                yield clique
            continue
        pivot = max(open_ | done, key=lambda node: (len(graph[node] & open_), node.name))
        for node in sorted(open_ - graph[pivot], key=lambda node: node.name):
            stack.append((clique | {node}, open_ & graph[node], done & graph[node]))
            open_ = open_ - {node}
            done = done | {node}


def _named(facets: Sequence[_Facet]) -> dict[str, _Facet]:
    """Return the sets under names of the format that the API wants, each once."""
    named: dict[str, _Facet] = {}
    for number, facet in enumerate(facets):
        joined = "-".join(sorted(node.name.lower() for node in facet))
        name = re.sub(r"[^a-z0-9]+", "-", joined).strip("-")
        if not name or len(name) > _MAX_NAME or name in named:
            name = f"group-{number}"
        named[name] = facet
    return named
