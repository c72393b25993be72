"""The page of `drawbridge plan` for the meeting that decides: waves, devices, evictions and risks."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from answers.manifests.not_modelled import NOT_MODELLED
from cli.html.elements import Child, Markup, element, join
from cli.html.page import badge, build_page, lines, names, row, section, table, tiles
from cli.runbooks.plan_text import free_by_kind, losses_text, namespace_texts
from cli.runbooks.work_texts import start_again_texts
from findings.text import count_text, join_names, reference_text
from migration.legacy.remaining import remaining_texts
from migration.plan.facts.work import describe_work
from migration.plan.model.plan import Held, Plan, PlannedWorkload, Wave
from migration.plan.search.device_map import Course, NodeState, NodeUse, WaveDetails

_BOX: Final = 10
"""Width and height of a device, and of a wave."""
_GAP: Final = 2
_COLOURS: Final = {NodeState.PLUGIN: "o1", NodeState.DRA: "o0"}
_BADGES: Final = {NodeState.PLUGIN: "", NodeState.DRA: "good", NodeState.DRAINED: "fair"}


_COURSES: Final = {
    Course.MOVES: "Evicted, and created again elsewhere",
    Course.BOUND: "Evicted, and back with their node: a PersistentVolume of theirs stays on it",
    Course.ASKS: "Would lose work, and do not end by themselves: a person ends them, or has them evicted",
    Course.ENDS: "Waited for until they end",
    Course.STAYS: "Pods of DaemonSets: created again on their node once it has changed",
    Course.BY_HAND: "Deleted by a person first, since nothing creates them again",
}


def format_plan_page(plan: Plan, details: Sequence[WaveDetails]) -> str:
    """Return the page.

    Args:
        plan: The plan.
        details: The details of its waves, in the order of the waves.
    """
    cluster = plan.cluster
    facts = (
        f"Kubernetes {plan.kubernetes_version}" if plan.kubernetes_version else "",
        f"context {cluster.context}" if cluster.context else "",
        cluster.server,
        f"state of {cluster.taken_at}" if cluster.taken_at else "",
    )
    waves = list(zip(plan.waves, details, strict=True))
    return build_page(
        "Plan of a migration",
        ", ".join(filter(None, facts)),
        None if plan.complete else element("p", badge("not complete", "bad"), _INCOMPLETE),
        tiles(_tiles(plan, details)),
        section("Timeline", _timeline(plan), _free_by_kind(plan), note=_LEAVING),
        section("Risks", _risks(plan), note=losses_text(plan) if plan.waves else ""),
        section("Kept", *(element("p", f"{text}.") for text in remaining_texts(plan.remaining)))
        if plan.remaining.nodes or plan.remaining.workloads
        else None,
        section("Start again", *(element("p", f"{text}.") for text in start_again_texts(plan)))
        if plan.stopped_workloads
        else None,
        section("Without a wave", _without_wave(plan.held)) if plan.held else None,
        section("Devices", *_overview(plan, details), note=_LEGEND) if details else None,
        *(_wave(wave, entry) for wave, entry in waves),
        section("Not modelled", element("p", f"{', '.join(map(_not_modelled, NOT_MODELLED))}.")),
    )


def _not_modelled(name: str) -> str:
    return f"{name}, but for {_MODELLED[name]}" if name in _MODELLED else name


_MODELLED: Final = {
    "volumes": "PersistentVolumes of one node",
    "affinity between pods": "required anti-affinity of pods that get claims",
    "topology spread": "DoNotSchedule of pods that get claims",
}
"""Features to the part of each that a plan does look at."""
_INCOMPLETE: Final = " The search for waves was interrupted: nothing of this plan may be run."
_LEAVING: Final = (
    "Leaving pods are those with devices on the nodes of a wave: evicted ones, and others that a script waits for or asks "
    "about, that a person deletes first, or that a DaemonSet creates again there."
)
_LEGEND: Final = (
    "A box is a device, filled if a pod uses it or a part of it: one colour for device plugins, one for "
    "DRA drivers. Drained nodes take no pods. All devices count as used on a node with pods that would be "
    "rejected, since nobody knows which of them these use."
)


def _tiles(plan: Plan, details: Sequence[WaveDetails]) -> Iterator[tuple[str, Child]]:
    yield "waves", len(plan.waves)
    yield "nodes to switch", sum(len(wave.nodes) for wave in plan.waves)
    yield "namespaces", len({name for wave in plan.waves for name in wave.opted_in})
    yield "workloads", len({entry.object for wave in plan.waves for entry in wave.workloads})
    yield "leaving pods", sum(wave.moved_pods for wave in plan.waves)
    yield "evicted of them", sum(wave.evicted_pods for wave in plan.waves)
    yield "without a wave", len({entry.object for entry in plan.held})
    if details:
        first = details[0].before.values()
        yield (
            "devices in use today, or not known to be free",
            f"{sum(use.in_use for use in first)} of {sum(use.devices for use in first)}",
        )


# --- the timeline ---------------------------------------------------------------------------------


def _timeline(plan: Plan) -> Markup:
    if not plan.waves:
        return element("p", "There is no wave.")
    total = sum(len(wave.nodes) for wave in plan.waves)
    rows, done = [], 0
    for wave in plan.waves:
        before, done = done, done + len(wave.nodes)
        rows.append(
            row(
                element("a", f"Wave {wave.wave}", href=f"#{_anchor(wave)}"),
                lines([_bar(before, done, total), f"{done} of {total} nodes switched"]),
                names([node.name for node in wave.nodes]) if wave.nodes else "-",
                names(namespace_texts(wave)) if wave.opted_in else "-",
                len(wave.workloads),
                wave.moved_pods,
                wave.evicted_pods,
                f"{wave.free_for_keys.before} to {wave.free_for_keys.after}",
                f"{wave.free_for_claims.before} to {wave.free_for_claims.after}",
            )
        )
    head = (
        *(
            "Wave",
            "Progress",
            "Nodes",
            "Namespaces",
            "Workloads",
            "Leaving pods",
            "Evicted of them",
        ),
        *("Free for keys", "Free for claims"),
    )
    return table("The waves in their order", head, rows)


def _free_by_kind(plan: Plan) -> Markup | None:
    """Return the free devices of each kind of node around each wave; None for a cluster with one kind."""
    texts = [free_by_kind(wave) for wave in plan.waves]
    if not any(texts):
        return None
    return table(
        "Free devices by kind of node, of device plugins for keys and of DRA drivers for claims",
        ("Wave", *texts[0]),
        (
            row(f"Wave {wave.wave}", *kinds.values())
            for wave, kinds in zip(plan.waves, texts, strict=True)
        ),
    )


def _bar(before: int, after: int, total: int) -> Markup:
    """Return the nodes of earlier waves and of this one as parts of a line."""
    width = 120

    def part(first: int, last: int, colour: str) -> Markup:
        x, end = (width * number / max(total, 1) for number in (first, last))
        return element(
            "rect", class_=colour, x=f"{x:.1f}", y=1, width=f"{end - x:.1f}", height=_BOX
        )

    return element(
        "svg",
        element("rect", class_="device", x=0, y=1, width=width, height=_BOX),
        part(0, before, "o0"),
        part(before, after, "o2"),
        viewBox=f"0 0 {width} {_BOX + _GAP}",
        width=width,
        height=_BOX + _GAP,
        aria_hidden="true",
    )


# --- risks ----------------------------------------------------------------------------------------


def _risks(plan: Plan) -> Markup:
    waves_of: dict[str, list[str]] = {}
    for wave in plan.waves:
        for note in wave.notes:
            waves_of.setdefault(note, []).append(str(wave.wave))
    if not waves_of:
        return element("p", "No wave has a note. What is not modelled stands at the end.")
    return table(
        "What people have to know, by wave",
        ("Waves", "Risk"),
        (row(", ".join(waves), note) for note, waves in waves_of.items()),
    )


def _without_wave(entries: Sequence[Held]) -> Markup:
    objects_of: dict[tuple[str, str], list[str]] = {}
    for entry in entries:
        name = reference_text(entry.object).removesuffix("/")
        objects_of.setdefault((entry.reason, entry.fix), []).append(name)
    return table(
        "Nodes and namespaces that stay as they are, and the fix",
        ("Objects", "Reason", "Fix"),
        (
            row(names(object_names), reason, fix or "-")
            for (reason, fix), object_names in objects_of.items()
        ),
    )


# --- devices --------------------------------------------------------------------------------------


def _overview(plan: Plan, details: Sequence[WaveDetails]) -> Iterator[Markup]:
    """Yield the devices of all nodes before the first wave and after the last one."""
    uncounted = [
        name
        for entry in plan.held
        if entry.object.startswith("Node//")
        and (name := entry.object.removeprefix("Node//")) not in details[0].before
    ]
    if uncounted:
        names_text = join_names(list(dict.fromkeys(uncounted)))
        yield element(
            "p", f"The devices of {names_text} are not counted: see why under Without a wave."
        )
    for title, uses in (("Before", details[0].before), ("After", details[-1].after)):
        yield element("h3", title)
        yield element(
            "p",
            ", ".join(
                f"{state.value}: {text}" for state, text in _sums(uses).items() if text is not None
            ),
        )
        yield element(
            "p", (_devices(use) for use in uses.values()), aria_hidden="true", class_="map"
        )


def _sums(uses: Mapping[str, NodeUse]) -> dict[NodeState, str | None]:
    texts: dict[NodeState, str | None] = {}
    for state in (NodeState.PLUGIN, NodeState.DRA):
        members = [use for use in uses.values() if use.state is state]
        in_use, devices = sum(use.in_use for use in members), sum(use.devices for use in members)
        text = f"{in_use} of {count_text(devices, 'device')} in use on {count_text(len(members), 'node')}"
        texts[state] = text if members else None
    return texts


def _wave(wave: Wave, details: WaveDetails) -> Markup:
    switched = {node.name for node in wave.nodes}
    changed = [
        name
        for name, use in details.before.items()
        if name in switched or not use == details.during[name] == details.after[name]
    ]
    more = len(details.before) - len(changed)
    return element(
        "section",
        element("h2", f"Wave {wave.wave}", id=_anchor(wave)),
        element(
            "details",
            element("summary", "Devices before, during and after"),
            _map(wave.wave, changed, details),
        ),
        element("p", f"The devices of {count_text(more, 'other node')} stay as they are.")
        if more
        else None,
        *_leaving(details),
        _other_pods(wave, details),
        *_losses(wave),
        element("h3", "Gets claims, and is restarted"),
        _workloads(entry for entry in wave.workloads if entry.is_restarted),
        element("h3", "Gets claims later"),
        element(
            "p",
            "Pods of Jobs go on as they are, and later ones get claims; a DaemonSet's pods change with their nodes; "
            "other pods without a controller are created again by hand.",
        ),
        _workloads(
            entry
            for entry in wave.workloads
            if entry.is_translated and not entry.is_restarted and not entry.ends
        ),
        *_ending(wave),
    )


def _ending(wave: Wave) -> Iterator[Markup]:
    """Yield the workloads that end without claims."""
    entries = [entry for entry in wave.workloads if entry.is_translated and entry.ends]
    if entries:
        yield element("h3", "Ends as it is, without claims")
        yield _workloads(entries)


def _leaving(details: WaveDetails) -> Iterator[Markup]:
    """Yield the course of the pods with devices of a wave's nodes, and of others that are waited for or asked about."""
    if not details.leaving:
        yield element("h3", _COURSES[Course.MOVES])
        yield element("p", "No pod with devices.")
    for course, title in _COURSES.items():
        entries = [entry for entry in details.leaving if entry.course is course]
        if entries:
            yield element("h3", title)
            texts = (
                f"{reference_text(entry.workload)}: {count_text(entry.pods, 'pod')}"
                f"{'' if entry.has_devices else ' without devices'}"
                for entry in entries
            )
            yield element("ul", (element("li", text) for text in texts))


def _losses(wave: Wave) -> Iterator[Markup]:
    """Yield the pods that lose something by the drains, and those that a person deletes, all of them."""
    deleted = {item.pod for item in wave.deleted_by_hand}
    for title, items in (
        (
            "What evictions take from pods of its nodes, all of it",
            [item for item in wave.work if item.pod not in deleted],
        ),
        ("Deleted by a person, since nothing creates them again", wave.deleted_by_hand),
    ):
        if items:
            yield element("h3", title)
            texts = (f"{reference_text(item.pod)} {describe_work(item)}" for item in items)
            yield element("ul", (element("li", text) for text in texts))


def _other_pods(wave: Wave, details: WaveDetails) -> Markup | None:
    """Return the course of the pods without devices that are evicted; None without any."""
    if not details.others:
        return None
    text = join(
        element("h3", "Evicted, without devices"),
        element("ul", (element("li", f"{name.namespace}/{name.name}") for name in details.others)),
    )
    if not wave.unplaced_pods:
        return join(text, element("p", "Other nodes have the CPU and memory for them."))
    waiting = [pod for pod in wave.unplaced_pods if pod not in wave.stranded_pods]
    lists = (
        ("No other node takes these, or has room for them; they wait until one is back:", waiting),
        (
            "No node has the labels that these select, also after the wave, so they wait for ever:",
            [pod for pod in wave.stranded_pods if pod not in wave.uncolocated_pods],
        ),
        (
            "No node that these may use offers the batch or mid amounts that they request, also after the wave, so they wait for ever:",
            wave.uncolocated_pods,
        ),
    )
    return join(
        text,
        *(
            join(
                element("p", title), element("ul", (element("li", reference_text(p)) for p in pods))
            )
            for title, pods in lists
            if pods
        ),
    )


def _pods_text(workload: PlannedWorkload) -> str:
    asks = ", once a person says so" if workload.asks else ""
    return f"{reference_text(workload.object)}: {count_text(workload.pods, 'pod')}{asks}"


def _workloads(entries: Iterable[PlannedWorkload]) -> Markup:
    items = [
        element("li", "; ".join((_pods_text(entry), *entry.losses, *entry.claim_losses)))
        for entry in entries
    ]
    return element("ul", items) if items else element("p", "Nothing.")


def _map(number: int, node_names: Sequence[str], details: WaveDetails) -> Markup:
    return table(
        f"Devices of the nodes that change with wave {number}",
        ("Node", "Before", "During", "After"),
        (
            row(
                name,
                *(_use(uses[name]) for uses in (details.before, details.during, details.after)),
            )
            for name in node_names
        ),
    )


def _use(use: NodeUse) -> Markup:
    text = f" {use.in_use} of {use.devices} in use" if use.state is not NodeState.DRAINED else ""
    return join(_devices(use), badge(use.state.value, _BADGES[use.state]), text)


def _devices(use: NodeUse) -> Markup:
    """Return the devices of a node as boxes; the text beside them says the same."""
    width = use.devices * (_BOX + _GAP)
    state = " tainted" if use.state is NodeState.DRAINED else ""
    return element(
        "svg",
        (
            element(
                "rect",
                class_=_COLOURS[use.state]
                if number < use.in_use and not state
                else f"device{state}",
                x=1 + number * (_BOX + _GAP),
                y=1,
                width=_BOX,
                height=_BOX,
            )
            for number in range(use.devices)
        ),
        viewBox=f"0 0 {width} {_BOX + _GAP}",
        width=width,
        height=_BOX + _GAP,
        aria_hidden="true",
    )


def _anchor(wave: Wave) -> str:
    return f"wave-{wave.wave}"
