"""The page of `drawbridge assess`: workloads today and after, nodes with the devices they would hold."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from allocator.explain.trace import NodeTrace, PlacementTrace
from answers.cluster.devices import DeviceConsumer
from answers.manifests.not_modelled import NOT_MODELLED
from cli.html.elements import Child, Markup, element, join
from cli.html.nodes import NodeCard, anchors, by_node, cards
from cli.html.page import (
    Filter,
    badge,
    build_page,
    lines,
    names,
    row,
    section,
    summary_row,
    table,
    tiles,
    with_code,
)
from cli.output.translate_text import result_paragraph
from cli.verbs.assess.text import (
    QUOTAS_STEP,
    keep_texts,
    kept_texts,
    mapping_texts,
    native_costs,
    next_step,
    nothing_left_text,
    scheduler_stays_texts,
    scheduler_texts,
)
from findings.text import count_text, join_names, reference_text
from migration.assessment.assessed_cluster import DetailedAssessment
from migration.assessment.blockers import Blocker
from migration.assessment.outcomes import AssessedWorkload, Outcome
from migration.assessment.residue import Residue
from migration.cluster.drain_stops import DrainStop
from migration.cluster.node_devices import NodeDevices
from migration.conversion.replaced_lines import ReplacedLines, replaced_text
from migration.legacy.remaining import Remaining
from translation.profiles.profile import Profile

_KINDS: Final = {
    Outcome.NATIVE: "good",
    Outcome.TRANSLATED: "good",
    Outcome.LOSSY: "fair",
    Outcome.REFUSED: "bad",
    Outcome.UNKNOWN: "fair",
}
_MAX_GROUPS: Final = 8
"""Groups of nodes that the placement of one workload shows."""
_MAX_STAGES: Final = 6


def format_assess_page(
    details: DetailedAssessment,
    profiles: Mapping[str, Profile],
    residue: Residue | None = None,
    *,
    context: str = "",
    taken_at: str = "",
) -> str:
    """Return the page.

    Args:
        details: The assessment, its devices and placements.
        profiles: Driver to profile.
        residue: The remains of legacy systems; None where they were not asked for.
        context: The kubeconfig's context of the cluster; empty where it is not known.
        taken_at: The time of its state in RFC 3339; empty where it is not known.
    """
    assessment = details.assessment
    devices = by_node(details.devices)
    node_names = dict.fromkeys([*(node.node for node in assessment.nodes), *devices])
    ids = anchors(node_names)
    subtitle = (
        *([f"context {context}"] if context else []),
        *([f"Kubernetes {assessment.version}"] if assessment.version else []),
        *([f"as of {taken_at}"] if taken_at else []),
    )
    return build_page(
        "Assessment of a cluster",
        ", ".join(subtitle),
        tiles(_tiles(details)),
        section("Namespaces", _namespaces(assessment.workloads)) if assessment.workloads else None,
        _residue(residue, assessment.remaining) if residue is not None else None,
        section(
            "Blockers",
            _blockers(assessment.blockers, "None."),
            element("p", f"Next: {step}") if (step := next_step(assessment)) else None,
        ),
        section("Notes", _blockers(assessment.notes, "None.")) if assessment.notes else None,
        _quotas(assessment.quotas_to_convert, assessment.quotas_left, assessment.replaced_lines),
        _fixes(assessment.workloads),
        section(
            "What native costs", element("p", with_code(f"{native_costs(assessment.components)}."))
        )
        if assessment.totals()[Outcome.NATIVE.value]
        else None,
        section("Kept", *(element("p", with_code(f"{text}.")) for text in kept_texts(assessment)))
        if assessment.kept
        else None,
        section("Schedulers", *(element("p", with_code(f"{text}.")) for text in schedulers))
        if (schedulers := tuple(scheduler_texts(assessment.workloads)))
        else None,
        section("To keep", *(element("p", with_code(text)) for text in keep_texts(assessment)))
        if assessment.capacity.keys_to_keep
        else None,
        section(
            "Mappings that are too wide",
            *(element("p", with_code(text)) for text in mapping_texts(assessment)),
        )
        if assessment.wide_mappings
        else None,
        section("Workloads", _workloads(details, profiles, ids)),
        section("Nodes", _nodes(details, ids), note=_nodes_note(details)),
        _readers(assessment.readers),
        _drain_stops(assessment.drain_stops),
        section("Not read", names(assessment.unreadable)) if assessment.unreadable else None,
        section("Not modelled", element("p", f"{', '.join(NOT_MODELLED)}.")),
        choice=Filter(label="Outcome", values=[outcome.value for outcome in Outcome]),
    )


def _tiles(details: DetailedAssessment) -> Iterator[tuple[str, Child]]:
    assessment = details.assessment
    yield "workloads", len(assessment.workloads)
    yield "pods", sum(workload.pods for workload in assessment.workloads)
    for outcome, count in assessment.totals().items():
        if count:
            yield outcome, count
    yield "blockers", len(assessment.blockers)
    yield "pods placed", f"{assessment.capacity.placed} of {assessment.capacity.pods}"
    yield "nodes with devices", len(assessment.nodes)


def _residue(residue: Residue, remaining: Remaining) -> Markup:
    nothing = nothing_left_text(residue, remaining)
    return section(
        "Left of legacy systems",
        _blockers(residue.left, f"{nothing[0].upper()}{nothing[1:]}."),
        *(element("p", f"{text}.") for text in scheduler_stays_texts(residue.schedulers)),
    )


def _blockers(blockers: Sequence[Blocker], none: str) -> Markup:
    if not blockers:
        return element("p", none)
    return table(
        "What is wrong, and the fix",
        ("Code", "Problem", "Fix", "Objects"),
        (
            row(
                blocker.code,
                with_code(blocker.message),
                with_code(blocker.fix or "-"),
                # Of what has no namespace, a reference has an empty one.
                names([reference_text(name) for name in blocker.objects]),
            )
            for blocker in blockers
        ),
    )


def _namespaces(workloads: Sequence[AssessedWorkload]) -> Markup:
    """Return the number of workloads of each outcome by namespace."""
    counts: dict[str, Counter[Outcome]] = {}
    pods: Counter[str] = Counter()
    for workload in workloads:
        counts.setdefault(workload.key.namespace, Counter())[workload.outcome] += 1
        pods[workload.key.namespace] += workload.pods
    outcomes = [outcome for outcome in Outcome if any(count[outcome] for count in counts.values())]
    return table(
        "Workloads of each namespace by outcome",
        ("Namespace", "All pods", *(outcome.value for outcome in outcomes)),
        (
            summary_row(
                namespace,
                pods[namespace],
                *(
                    badge(str(counts[namespace][outcome]), _KINDS[outcome])
                    if counts[namespace][outcome]
                    else "-"
                    for outcome in outcomes
                ),
            )
            for namespace in sorted(counts)
        ),
    )


def _quotas(
    quotas: Sequence[str], left: Mapping[str, Mapping[str, str]], replaced: Sequence[ReplacedLines]
) -> Markup | None:
    """Return the quotas that get lines for claims, the lines that get no counterpart, and those that go."""
    if not quotas and not left and not replaced:
        return None
    note = element("p", with_code(f"{count_text(len(quotas), 'quota')} to convert: {QUOTAS_STEP}."))
    rows = [
        row(reference, line, reason)
        for reference, lines in left.items()
        for line, reason in lines.items()
    ]
    head = ("quota", "line", "why no line for claims can be added")
    return section(
        "Quotas",
        *((note, names(quotas)) if quotas else ()),
        table("Lines that count no pods with claims", head, rows) if rows else None,
        *(element("p", with_code(f"{replaced_text(entry)}.")) for entry in replaced),
    )


def _drain_stops(stops: Sequence[DrainStop]) -> Markup | None:
    """Return the PodDisruptionBudgets that would stop drains."""
    if not stops:
        return None
    return section(
        "Budgets that stop drains",
        table(
            "PodDisruptionBudgets without a disruption to allow",
            ("Budget", "Selects", "Reason", "Fix", "Pods", "Which"),
            (
                summary_row(
                    element("code", stop.budget),
                    element("code", stop.selects),
                    stop.reason,
                    stop.fix,
                    len(stop.pods),
                    names(stop.pods),
                )
                for stop in stops
            ),
        ),
    )


def _fixes(workloads: Sequence[AssessedWorkload]) -> Markup | None:
    """Return each fix once, with the workloads that it is for."""
    names_by_fix: dict[str, list[str]] = {}
    for workload in workloads:
        if workload.fix:
            names_by_fix.setdefault(workload.fix, []).append(workload.key.reference)
    if not names_by_fix:
        return None
    return section(
        "Fixes",
        table(
            "What to do for workloads",
            ("Fix", "Workloads", "Which"),
            (
                summary_row(with_code(fix), len(workload_names), names(workload_names))
                for fix, workload_names in sorted(
                    names_by_fix.items(), key=lambda entry: (-len(entry[1]), entry[0])
                )
            ),
        ),
    )


def _readers(readers: Mapping[str, tuple[str, ...]]) -> Markup | None:
    if not readers:
        return None
    return section(
        "Readers of device keys",
        table(
            "Objects that count device keys, which pods with claims do not have",
            ("Object", "Keys"),
            (row(reader, ", ".join(keys)) for reader, keys in readers.items()),
        ),
    )


# --- workloads ------------------------------------------------------------------------------------


def _workloads(
    details: DetailedAssessment, profiles: Mapping[str, Profile], ids: Mapping[str, str]
) -> Markup:
    workloads = details.assessment.workloads
    if not workloads:
        return element("p", "No workload requests devices.")
    head = ("Workload", "Pods", "Outcome", "Today", "Becomes", "Lost or wrong", "First pod alone")
    return table(
        "Each top-level owner with its pods",
        head,
        (
            row(
                workload.key.reference,
                workload.pods,
                badge(workload.outcome.value, _KINDS[workload.outcome]),
                *_today_and_after(workload, profiles),
                lines(_losses(workload)),
                _placement(workload, details, ids),
                value=workload.outcome.value,
            )
            for workload in workloads
        ),
    )


def _today_and_after(
    workload: AssessedWorkload, profiles: Mapping[str, Profile]
) -> tuple[Child, Child]:
    """Return the requests of a workload, and their translation."""
    if workload.result is None:
        return lines(sorted(workload.keys)), "-"
    texts: dict[str, list[str]] = {}
    label = ""
    for text_row in result_paragraph(workload.result, profiles).rows:
        label = text_row.label or label
        texts.setdefault(label, []).append(text_row.text)
    today = texts.get("requested") or sorted(workload.keys)
    if workload.outcome is Outcome.NATIVE:
        return lines(today), "the same pods; Kubernetes makes their claims"
    return lines(today), lines(texts.get("becomes") or ["-"])


def _losses(workload: AssessedWorkload) -> Iterator[Child]:
    for finding in workload.findings:
        yield with_code(f"{finding.message} [{finding.code.value}]")


def _placement(
    workload: AssessedWorkload, details: DetailedAssessment, ids: Mapping[str, str]
) -> Child:
    """Return the placement of the first pod, and, folded, the reasons against other nodes."""
    capacity = details.assessment.capacity
    unplaced = capacity.unplaced.get(workload.key.reference, 0)
    shortage = badge(f"{count_text(unplaced, 'pod')} without devices", "bad") if unplaced else None
    trace = details.traces.get(workload.key.reference)
    if trace is None:
        is_unknown = workload.key.reference in capacity.not_counted
        return "its driver has no known devices" if is_unknown else "-"
    place = _node(trace.node, ids) if trace.node is not None else "fits no node"
    return join(
        shortage,
        element(
            "details",
            element("summary", place if trace.node is None else trace.node),
            element("p", "on ", place, f": {_devices(trace)}") if trace.node is not None else None,
            element("ul", (element("li", line) for line in _elsewhere(trace))),
        ),
    )


def _devices(trace: PlacementTrace) -> str:
    return ", ".join(trace.devices) or "no devices"


def _node(name: str, ids: Mapping[str, str]) -> Child:
    return element("a", name, href=f"#{ids[name]}") if name in ids else name


def _elsewhere(trace: PlacementTrace) -> Iterator[Child]:
    """Yield other nodes with their score, or the reason they are out."""
    for group in trace.nodes[:_MAX_GROUPS]:
        others = [name for name in group.nodes if name != trace.node]
        if not others:
            continue
        if group.fits:
            yield f"{join_names(others)}: would do as well, score {group.score}"
        else:
            yield (f"{join_names(others)}: ", element("ul", map(_stage_item, _stages(group))))
    if len(trace.nodes) > _MAX_GROUPS:
        yield f"{count_text(len(trace.nodes) - _MAX_GROUPS, 'more group')} of nodes"
    for excluded in trace.excluded:
        yield f"{join_names(excluded.nodes)}: {excluded.message} [{excluded.code}]"


def _stage_item(text: str) -> Markup:
    return element("li", text)


def _stages(group: NodeTrace) -> list[str]:
    texts = [
        f"{stage.before - stage.after} of {count_text(stage.before, 'device')}: {stage.message} "
        f"[{stage.code}]"
        for stage in group.stages[:_MAX_STAGES]
    ]
    return texts or ["its devices do not fit together"]


# --- nodes ----------------------------------------------------------------------------------------


def _nodes_note(details: DetailedAssessment) -> str:
    is_assumed = any(not node.published for node in details.assessment.nodes)
    assumed = " Devices of nodes that publish none are assumed." if is_assumed else ""
    return f"As they would be with all pods placed; colours are those of workloads.{assumed}"


def _nodes(details: DetailedAssessment, ids: Mapping[str, str]) -> Markup:
    owners = details.assessment.capacity.claim_owners

    def owner_of(consumer: DeviceConsumer) -> str:
        return owners.get(consumer.claim, f"claim {consumer.claim}")

    devices = by_node(details.devices)
    drawn = [
        NodeCard(name=node.node, devices=devices.get(node.node, ()), subtitle=_source(node))
        for node in details.assessment.nodes
    ]
    drawn_names = {card.name for card in drawn}
    drawn += [
        NodeCard(name=name, devices=own) for name, own in devices.items() if name not in drawn_names
    ]
    if not drawn:
        return element("p", "No node is known to have devices.")
    return cards(drawn, ids, owner_of)


def _source(node: NodeDevices) -> str:
    source = node.source.value if node.source is not None else "no devices"
    if node.is_unreadable:
        return f"{source}: its register cannot be read"
    if node.published and not node.legacy:
        return source
    models = sorted({device.model for device in node.legacy if device.model})
    model = f" {', '.join(models)}" if models else ""
    return f"{source}: {count_text(len(node.legacy), 'device')}{model}, assumed"
