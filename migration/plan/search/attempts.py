"""The largest wave that fits at a moment: its nodes, and its namespaces. Pure."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Final

import msgspec

from findings.text import join_names
from migration.cluster.equivalence import NodeGroup
from migration.plan.model.parts import (
    Part,
    largest_fitting,
    numbers_to_try,
    share_of_wave,
)
from migration.plan.search.losses import NodeLosses, loss_text
from migration.plan.search.moments import (
    Attempt,
    Candidate,
    CheckedMoment,
    Moment,
    Obstacle,
    Policy,
    nodes_in_order,
    rounds,
    stage_after,
)
from migration.plan.search.rivals import (
    OPT_IN_FIRST,
    explained,
    pods_obstacle,
)
from migration.plan.stage.placement import Placer
from migration.plan.stage.stage import PodKey
from migration.plan.stage.stage_allocator import Placement, drivers_with_fewer_free, free_shortage

_TRIED_ALONE: Final = 32
"""Nodes that are tried one by one where the first ones do not fit."""
_TRIED_BESIDE: Final = 12
"""Nodes that do not fit beside others, after which a wave gets no more."""
_TRIED_OF_GROUP: Final = 3
"""Those of them of one group."""
_TRIED_PARTS: Final = 16
"""Parts that are tried one by one where the first ones do not fit."""
_OPTED_IN: Final = "once it is opted in"
_SWITCH_FIRST: Final = "solve what holds these nodes first; then plan again from a new snapshot"
_KEEP_LESS: Final = "plan with a lower --keep-free, or free devices first"
_SPARE_LESS: Final = "free devices or add a node first, or plan with --spare-nodes 0"


class WaveSearch:
    """Searches for one wave after the other.

    Attributes:
        obstacle: The last one that was met; None where all fitted.
        lacks_spare: True if the last call of `find` met one for want of a node to spare.
    """

    def __init__(
        self, placer: Placer, policy: Policy, losses: NodeLosses, stops: Callable[[], bool]
    ) -> None:
        """Prepare the search.

        Args:
            placer: Places the pods.
            policy: The sizes of waves.
            losses: The losses of nodes that waves are tried with.
            stops: A function that returns true to give up the search.
        """
        self.obstacle: Obstacle | None = None
        self.lacks_spare = False
        self._placer = placer
        self._policy = policy
        self._stops = stops
        self._losses = losses
        self._groups = placer.node_groups()

    def find(self, moment: Moment) -> Attempt | None:
        """Return the largest wave that fits; None without any, and if the search is to stop."""
        self.obstacle, self.lacks_spare = None, False
        if not moment.nodes:
            return self._try_parts(moment)
        waits = False
        for nodes in rounds(self._ordered(moment), self._policy):
            if nodes[0].has_work and not waits:
                # Namespaces with nodes do not wait for the Jobs of others.
                waits, attempt = True, self._find_alone(moment)
                if attempt is not None or self._stops():
                    return attempt
            attempt = self._find_among(moment, nodes)
            if attempt is not None and not attempt.parts:
                attempt = self._with_one_part(moment, attempt)
            if attempt is not None or self._stops():
                return attempt and self._with_losses(moment, attempt)
        # No node can be drained before a namespace moves, as where a wave has ended between both.
        return None if waits or self._policy.leaves_nodes else self._find_alone(moment)

    def _find_alone(self, moment: Moment) -> Attempt | None:
        """Return a wave without nodes, of namespaces alone; None without one."""
        obstacle, attempt = self.obstacle, None
        daemon_nodes = self._placer.daemon_pods.nodes(moment.placement)
        if moment.servable(frozenset(), daemon_nodes) and not self._stops():
            attempt = self._try_parts(moment)
        self.obstacle = obstacle or self.obstacle
        return attempt

    def _try_parts(self, moment: Moment) -> Attempt | None:
        """Return the wave of as many parts as fit without a node; None without one."""
        attempt = self._try(moment, (), len(moment.parts)) or self._with_one_part(moment, None)
        return attempt and self._with_losses(moment, attempt)

    def _with_one_part(self, moment: Moment, attempt: Attempt | None) -> Attempt | None:
        """Return a wave with the first part that fits by itself, since those before it in their order may not.

        Args:
            moment: The moment before the wave.
            attempt: The wave, without parts; None for one without nodes.
        """
        nodes: tuple[Candidate, ...] = ()
        during, obstacle = None, self.obstacle
        if attempt is not None:
            nodes, during = attempt.nodes, attempt.during
        before = during.after(moment.placement) if during is not None else moment.placement
        names = frozenset(entry.node.name for entry in nodes)
        for part in self._parts_with(moment, names)[:_TRIED_PARTS]:
            if self._stops():
                break
            larger = self._switch(moment, nodes, before, (part,))
            if larger is not None:
                return msgspec.structs.replace(larger, during=during)
        self.obstacle = obstacle
        return attempt

    def _find_among(self, moment: Moment, ordered: list[Candidate]) -> Attempt | None:
        """Return the largest wave of some nodes that fits."""
        met: dict[str, Obstacle] = {}
        size = too_large = most_nodes = min(self._policy.wave_nodes, len(ordered))
        attempt = self._try_size(moment, ordered, size)
        if attempt is None and size > 1 and not self._stops():
            self._note(met)
            ordered = self._spared_first(moment, ordered)
            chosen = self._drainable(moment, ordered, met)
            ordered = [*chosen, *(entry for entry in ordered if entry not in chosen)]
            size, too_large = max(1, len(chosen)), max(1, len(chosen)) + 1
            attempt = self._try_size(moment, ordered, size)
        while attempt is None and size > 1 and not self._stops():
            self._note(met)
            size, too_large = size // 2, size
            attempt = self._try_size(moment, ordered, size)
        while attempt is not None and too_large - size > 1 and not self._stops():
            middle = (size + too_large) // 2
            larger = self._try_size(moment, ordered, middle)
            if larger is None:
                self._note(met)
                too_large = middle
            else:
                attempt, size = larger, middle
        if attempt is None:
            return None
        if attempt.parts and size > 1 and ordered[0].has_work:
            # Its namespaces would wait for the work of all its nodes.
            single = self._try_size(moment, ordered, 1)
            if single is not None:
                return single
        if len(attempt.nodes) < most_nodes:
            obstacles = (explained(self._placer, moment, entry) for entry in met.values())
            attempt = msgspec.structs.replace(attempt, obstacles=tuple(obstacles))
        return attempt

    def _ordered(self, moment: Moment) -> list[Candidate]:
        """Return the nodes in the order of their waves: with few pods first, with work that has to end last."""
        return nodes_in_order(
            moment, self._placer.daemon_pods.bound_nodes(moment.stage, moment.placement)
        )

    def _spared_first(self, moment: Moment, ordered: list[Candidate]) -> list[Candidate]:
        """Return the nodes, those of groups without a node to spare last.

        The first node of such a group leaves none to spare even alone. It would be in every wave that is tried, and make
        it a single other one.
        """
        if not self._policy.spare_nodes:
            return ordered
        leaves_spare: dict[NodeGroup, bool] = {}
        for entry in ordered:
            if self._stops():
                break
            group = self._groups[entry.node.name]
            if group not in leaves_spare:
                leaves_spare[group] = self._leaves_spare(moment, entry)
        return sorted(
            ordered, key=lambda entry: not leaves_spare.get(self._groups[entry.node.name], True)
        )

    def _leaves_spare(self, moment: Moment, entry: Candidate) -> bool:
        """Return False if a node alone is drained well, and its switch leaves none to spare."""
        names = frozenset({entry.node.name})
        during, obstacle = self._drain(moment, names)
        if obstacle is not None:
            return True
        stage = stage_after(moment.stage, names, ())
        after = self._placer.place(stage, during.after(moment.placement))
        return not any(self._losses.find(moment, stage, after))

    def _drainable(
        self, moment: Moment, ordered: Sequence[Candidate], met: dict[str, Obstacle]
    ) -> list[Candidate]:
        """Return the first nodes that can be drained together, as many as a wave may have.

        A node that does not fit at all would else be among the first ones of every wave. Of nodes that are the same
        to all pods only some are tried.

        Args:
            moment: The moment before the wave.
            ordered: The nodes.
            met: The obstacles to the others, which are added, of one fix the first; those to nodes that do not fit by
                themselves only if there are no others.
        """
        most_nodes, number = self._policy.wave_nodes, 0
        chosen: list[Candidate] = []
        failed = Counter[NodeGroup]()
        alone: dict[str, Obstacle] = {}
        beside: dict[str, Obstacle] = {}
        # The last chunk is the next one; nodes with work come last, so in no wave before another node.
        chunks = [
            [entry for entry in ordered if entry.has_work is has_work] for has_work in (True, False)
        ]
        while chunks and len(chosen) < most_nodes and number < _TRIED_BESIDE and not self._stops():
            chunk = [
                entry
                for entry in chunks.pop()
                if failed[self._groups[entry.node.name]] < _TRIED_OF_GROUP
            ]
            free = most_nodes - len(chosen)
            chunks += [chunk[free:]] if chunk[free:] else []
            chunk = chunk[:free]
            if not chunk:
                continue
            if beside and chunk[0].has_work:
                break
            names = frozenset(entry.node.name for entry in (*chosen, *chunk))
            obstacle = self.check_drain(moment, names)
            if obstacle is None:
                chosen += chunk
            elif len(chunk) == 1:
                number += 1
                failed[self._groups[chunk[0].node.name]] += 1
                # What does not fit at all says nothing about the size of this wave.
                own = self.check_drain(moment, frozenset(entry.node.name for entry in chunk))
                (beside if own is None else alone).setdefault(obstacle.fix, obstacle)
            else:
                half = len(chunk) // 2
                chunks += [chunk[half:], chunk[:half]]
        met.update(beside or alone)
        return chosen

    def repeat(
        self, moment: Moment, nodes: tuple[Candidate, ...], parts: tuple[Part, ...]
    ) -> Attempt | None:
        """Return the wave of these nodes and parts; None if it does not fit."""
        names = frozenset(entry.node.name for entry in nodes)
        before, during = moment.placement, None
        if nodes:
            during, obstacle = self._drain(moment, names)
            if obstacle is not None:
                return None
            before = during.after(moment.placement)
        movable = self._parts_with(moment, names)
        if not all(part in movable for part in parts):
            return None
        attempt = self._switch(moment, nodes, before, parts)
        return attempt and self._with_losses(
            moment, msgspec.structs.replace(attempt, during=during)
        )

    def _with_losses(self, moment: Moment, attempt: Attempt) -> Attempt:
        """Return a wave with the sides that cannot lose a node after it."""
        if not self._policy.notes_loss:
            return attempt
        names = frozenset(entry.node.name for entry in attempt.nodes)
        stage = stage_after(moment.stage, names, attempt.parts)
        losses = self._losses.find(moment, stage, attempt.after)
        return msgspec.structs.replace(attempt, without_spare=tuple(loss.side for loss in losses))

    def explain_part(self, moment: Moment, attempt: Attempt, part: Part) -> str:
        """Return the reason that a part gets no claims with a wave, too; empty for one that would fit."""
        names = frozenset(entry.node.name for entry in attempt.nodes)
        text = join_names(part.workloads) or "the rest of it"
        if part not in moment.servable(names, self._placer.daemon_pods.nodes(moment.placement)):
            return f"no node that {text} may use is switched by then"
        if awaited := moment.awaiting(part, names):
            return awaited[0].text(text)
        if part not in self._parts_with(moment, names):
            return f"{text} has a DaemonSet, and none of its nodes is switched by then"
        before = attempt.drained(moment.placement)
        larger = self._switch(moment, attempt.nodes, before, (*attempt.parts, part))
        if larger is None:
            return f"with {text} as well, {self.obstacle.problem}" if self.obstacle else ""
        stage = stage_after(moment.stage, names, larger.parts)
        losses = self._losses.find(moment, stage, larger.after) if self._policy.notes_loss else ()
        lost = [loss_text(loss) for loss in losses if loss.side not in attempt.without_spare]
        return f"with {text} as well, {lost[0]}" if lost else ""

    def explain(self, moment: Moment, node: Candidate) -> Obstacle | None:
        """Return the obstacle to a wave of one node; None if it fits."""
        self.obstacle = None
        share = self._share(moment, (node,))
        return self.explained(moment) if self._try(moment, (node,), share) is None else None

    def explained(self, moment: Moment) -> Obstacle | None:
        """Return the last obstacle with the pods in the place of others, and with held nodes; None without one."""
        return self.obstacle and explained(self._placer, moment, self.obstacle)

    def explain_namespace(self, moment: Moment, name: str) -> Obstacle | None:
        """Return the obstacle to a wave that opts in one namespace; None if it has no nodes, or if that fits.

        It has no fix of its own where nodes that were tried have to be switched first.
        """
        serving = moment.serving.get(name, frozenset())
        if not serving & moment.stage.switched:
            problem = f"no node that its pods may use is switched: {join_names(sorted(serving))}"
            is_tried = any(entry.node.name in serving for entry in moment.nodes)
            fix = "" if is_tried else _SWITCH_FIRST
            waits = Obstacle(moment=_OPTED_IN, nodes=(), problem=problem, fix=fix)
            return waits if serving else None
        left = [part for part in moment.parts if part.namespace == name]
        early = [moment.awaiting(part, frozenset()) for part in left]
        if early and all(early):
            return Obstacle(moment=_OPTED_IN, nodes=(), problem=early[0][0].text("it"), fix="")
        obstacle = self.check_wave(moment, frozenset(), (Part(namespace=name),))
        return obstacle and msgspec.structs.replace(obstacle, moment=_OPTED_IN, nodes=())

    def check_wave(
        self,
        moment: Moment,
        names: frozenset[str],
        parts: tuple[Part, ...],
        awaited: Collection[PodKey] = (),
    ) -> Obstacle | None:
        """Return the obstacle to the drain of nodes, else to their switch with the opt-in of parts, when awaited pods count."""
        before, self.obstacle = moment.placement, None
        if names:
            during, self.obstacle = self._drain(moment, names)
            before = during.after(before)
        if self.obstacle is None:
            moment = msgspec.structs.replace(moment, pending=moment.pending.difference(awaited))
            _, self.obstacle = self._switched(moment, names, before, parts)
        return self.explained(moment)

    def check_drain(self, moment: Moment, names: frozenset[str]) -> Obstacle | None:
        """Return the obstacle that keeps pods without devices while nodes are drained."""
        return self._drain(moment, names)[1]

    def _note(self, met: dict[str, Obstacle]) -> None:
        """Keep the obstacle of a size; of one fix that of the smallest size, since it is tried last."""
        if self.obstacle is not None:
            met[self.obstacle.fix] = self.obstacle

    def _try_size(self, moment: Moment, ordered: Sequence[Candidate], size: int) -> Attempt | None:
        """Return the wave of the first nodes; if a single one does not fit, that of another one."""
        for first in range(min(len(ordered), _TRIED_ALONE) if size == 1 else 1):
            nodes = tuple(ordered[first : first + size])
            attempt = self._try(moment, nodes, self._share(moment, nodes))
            if attempt is not None or self._stops():
                return attempt
        return None

    def _try(self, moment: Moment, nodes: tuple[Candidate, ...], share: int) -> Attempt | None:
        """Return the wave of some nodes with as many parts as its share, or as fit."""
        names = frozenset(entry.node.name for entry in nodes)
        before, during = moment.placement, None
        if nodes:
            during, obstacle = self._drain(moment, names)
            if obstacle is not None:
                self.obstacle = obstacle
                return None
            before = during.after(moment.placement)
        tried: dict[int, Attempt | None] = {}
        met: dict[int, Obstacle] = {}
        parts = self._parts_with(moment, names)
        share = min(share, len(parts))

        def fits(number: int) -> bool:
            if number not in tried:
                tried[number] = self._switch(moment, nodes, before, parts[:number])
                if tried[number] is None and self.obstacle is not None:
                    met[number] = self.obstacle
            return tried[number] is not None

        for number in numbers_to_try(share, len(parts)):
            if self._stops():
                return None
            if (nodes or number) and fits(number):
                most = number
                if number < share:
                    most = largest_fitting(number, min(n for n in tried if n > number), fits)
                chosen = tried[most]
                return chosen and msgspec.structs.replace(chosen, during=during)
        # Pods of DaemonSets get claims with some parts, and then something else does not fit.
        others = [number for number in sorted(met) if met[number].fix != OPT_IN_FIRST]
        self.obstacle = met[others[0]] if others else self.obstacle
        return None

    def _parts_with(self, moment: Moment, names: frozenset[str]) -> tuple[Part, ...]:
        """Return the parts that may move with some nodes, first those that have to, last those with pods that may stay longest.

        A namespace is opted in with the first node of its DaemonSets: later, pods there had device keys and no
        plugin; earlier, those that are created anew had claims and no driver.
        """
        daemon_nodes = self._placer.daemon_pods.nodes(moment.placement)
        left = {entry.node.name for entry in moment.nodes} - names
        bound = {name for name, nodes in daemon_nodes.items() if nodes & names}
        early = {
            name
            for name, nodes in daemon_nodes.items()
            if nodes & left and not nodes & (names | moment.stage.switched)
        }
        parts = [
            part
            for part in moment.servable(names, daemon_nodes)
            if (part.namespace not in early or not part.completes)
            and not moment.awaiting(part, names)
        ]
        return tuple(
            sorted(
                parts,
                key=lambda part: (part.namespace not in bound, part.has_any(moment.staying)),
            )
        )

    def _share(self, moment: Moment, nodes: Sequence[Candidate]) -> int:
        """Return the number of parts that a wave should opt in: before the nodes with work that come last, all."""
        without_work = [entry for entry in moment.nodes if not entry.has_work]
        left = without_work if nodes and not nodes[0].has_work else moment.nodes
        return share_of_wave(len(moment.parts), len(nodes), len(left))

    def _drain(self, moment: Moment, names: frozenset[str]) -> tuple[Placement, Obstacle | None]:
        stage = msgspec.structs.replace(moment.stage, draining=names, waits=True)
        during = self._placer.place(stage, moment.placement)
        when = CheckedMoment("while draining {}", names, stage, moment.placement)
        return during, self._check(moment, during, when)

    def _switch(
        self,
        moment: Moment,
        nodes: tuple[Candidate, ...],
        before: Placement,
        parts: tuple[Part, ...],
    ) -> Attempt | None:
        """Return the wave of nodes and parts, if pods have devices after it."""
        names = frozenset(entry.node.name for entry in nodes)
        after, obstacle = self._switched(moment, names, before, parts)
        if obstacle is not None:
            self.obstacle = obstacle
            return None
        return Attempt(nodes=nodes, parts=parts, after=after)

    def _switched(
        self, moment: Moment, names: frozenset[str], before: Placement, parts: tuple[Part, ...]
    ) -> tuple[Placement, Obstacle | None]:
        """Return the places of pods after a wave, and its obstacle."""
        stage = stage_after(moment.stage, names, parts)
        after = self._placer.place(stage, before)
        chosen = tuple(dict.fromkeys(part.namespace for part in parts))
        opted_in = f"{join_names(chosen)} opted in" if chosen else ""
        what = filter(None, ("{} switched" if names else "", opted_in))
        when = CheckedMoment(f"with {' and '.join(what)}", names, stage, before)
        obstacle = self._check(moment, after, when)
        return after, obstacle or self._check_loss(moment, after, when)

    def _check(self, moment: Moment, placement: Placement, when: CheckedMoment) -> Obstacle | None:
        """Return the obstacle in a placement at a moment; None if the placement is good enough."""
        if obstacle := pods_obstacle(moment, placement, when):
            return obstacle
        if not self._policy.keep_free:
            return None
        # A wave of namespaces alone may take devices of every driver, and has to do with those that it takes.
        drivers = (
            self._placer.drivers_on(when.nodes)
            if when.nodes
            else drivers_with_fewer_free(moment.placement.devices, placement.devices)
        )
        if problem := free_shortage(placement.devices, self._policy.keep_free, drivers):
            nodes = tuple(sorted(when.nodes))
            return Obstacle(moment=when.text, nodes=nodes, problem=problem, fix=_KEEP_LESS)
        return None

    def _check_loss(self, moment: Moment, after: Placement, when: CheckedMoment) -> Obstacle | None:
        """Return the obstacle to losing a side's largest nodes; None if all pods find devices."""
        if not self._policy.spare_nodes:
            return None
        for loss in self._losses.find(moment, when.stage, after):
            self.lacks_spare = True
            nodes = tuple(sorted(when.nodes))
            return Obstacle(moment=when.text, nodes=nodes, problem=loss_text(loss), fix=_SPARE_LESS)
        return None
