"""The text and the table of `drawbridge assess`."""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from cli.output.layout import Row, drop_repeated_labels, format_rows, format_table
from findings.finding import Code
from findings.text import count_text, join_names, printable, quote_text, reference_text
from migration.assessment.assessed_cluster import Assessment
from migration.assessment.outcomes import AssessedWorkload, Outcome
from migration.assessment.residue import Residue
from migration.assessment.stopped_outcomes import next_runs_text, suspended_text
from migration.cluster.device_pods import LEFT_SCHEDULER_FIX
from migration.conversion.replaced_lines import replaced_text
from migration.legacy.remaining import Remaining, remaining_texts
from translation.cluster.component_statements import NATIVE_COSTS, Component

SHOWN: Final = 5
"""Objects of a blocker or a loss that the text names."""

_MEANINGS: Final = {
    Outcome.NATIVE: "whole devices; Kubernetes serves them once a DeviceClass maps their names",
    Outcome.TRANSLATED: "become claims, exactly as requested",
    Outcome.LOSSY: "become claims, with a loss",
    Outcome.REFUSED: "would be rejected",
    Outcome.UNKNOWN: "are left alone, or cannot be read",
}


QUOTAS_STEP: Final = (
    "`drawbridge quota convert` prints them, the runbooks of `drawbridge plan` apply those that its waves need, and the "
    "outcomes are as if they were applied (--quotas as-they-are: as they are)"
)
_UNLESS_KEPT: Final = (
    ", unless their scheduler keeps the pods and counts claims, which the notes of plan say"
)
_NEXT: Final = "drawbridge plan -o FOLDER, with the same --snapshot or --live"
_NEXT_BLOCKED: Final = "remove what blocks, and assess a new snapshot; drawbridge plan -o FOLDER names what is held until then"


def native_costs(components: Mapping[Component, int | None]) -> str:
    """Return the losses of pods that Kubernetes serves by a mapped resource name, beside claims of their own.

    Args:
        components: The components that the cluster has, to their minor release, if it is known; nothing is said of others.
    """
    sentences = [
        entry.sentence
        for entry in NATIVE_COSTS
        if entry.component in components
        and ((release := components[entry.component]) is None or entry.holds_for(release))
    ]
    step = "translation.native: translate gives them claims of a translation"
    return "; ".join((*sentences, step))


def format_assessment(assessment: Assessment, width: int) -> str:
    """Return the assessment as text."""
    rows = list(drop_repeated_labels(_rows(assessment)))
    workloads = _workloads(assessment.workloads)
    return "\n\n".join(part for part in (format_rows(rows, width), workloads) if part)


def format_residue(residue: Residue, remaining: Remaining, width: int) -> str:
    """Format the remains of legacy systems.

    Args:
        remaining: The nodes and workloads that are to stay with their device plugin.
    """
    rows: list[Row] = []
    for entry in residue.left:
        text = f"{entry.message} [{entry.code}]"
        if entry.objects:
            text = f"{text}: {_some_names(entry.objects)}"
        rows += [Row(label="left", text=text), Row(label="fix", text=entry.fix)]
    texts = (*remaining_texts(remaining), *scheduler_stays_texts(residue.schedulers))
    rows += [Row(label="kept", text=text) for text in texts]
    if not residue.left:
        rows.insert(0, Row(label="left", text=nothing_left_text(residue, remaining)))
    return format_rows(rows, width)


def nothing_left_text(residue: Residue, remaining: Remaining) -> str:
    """Return the text on legacy systems that can go, with those parts that stay."""
    staying = []
    if remaining.nodes:
        staying.append(f"the device plugin of {_some_names(tuple(remaining.nodes))}")
    if residue.schedulers:
        noun = "scheduler" if len(residue.schedulers) == 1 else "schedulers"
        staying.append(f"{noun} {join_names([*map(printable, residue.schedulers)])}")
    exception = f", but for {' and '.join(staying)}" if staying else ""
    return f"nothing: legacy systems can go{exception}"


def scheduler_stays_texts(schedulers: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield a text on each scheduler that stays, with its workloads."""
    for name, workloads in schedulers.items():
        yield f"next pods of {_some_names(workloads)} go to scheduler {quote_text(name)}, and would wait for ever without it"


def format_csv(workloads: Iterable[AssessedWorkload]) -> str:
    """Return one line per workload, for spreadsheets."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("object", "pods", "outcome", "codes", "fix"))
    for workload in workloads:
        cells = (workload.key.reference, " ".join(workload.codes), workload.fix)
        reference, codes, fix = map(_inert, cells)
        writer.writerow((reference, workload.pods, workload.outcome.value, codes, fix))
    return text.getvalue()


def _inert(cell: str) -> str:
    """Return a cell that no spreadsheet takes for a formula, and nobody for something else."""
    cell = printable(cell)
    return f"'{cell}" if cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell


def _rows(assessment: Assessment) -> Iterator[Row]:
    if assessment.version:
        yield Row(label="cluster", text=f"Kubernetes {assessment.version}")
    if assessment.unreadable:
        yield Row(label="not read", text=", ".join(assessment.unreadable))
    yield from _nodes(assessment)
    yield from _outcomes(assessment)
    yield from _losses(assessment.workloads)
    yield from (Row(label="scheduler", text=text) for text in scheduler_texts(assessment.workloads))
    yield from (Row(label="kept", text=text) for text in kept_texts(assessment))
    yield from (Row(label="to keep", text=text) for text in keep_texts(assessment))
    yield from (Row(label="mappings", text=text) for text in mapping_texts(assessment))
    yield from _quotas(assessment)
    yield from _readers(assessment)
    for stop in assessment.drain_stops:
        holds = "plan holds these nodes" if stop.never else "their drains would stop"
        text = f"{stop.reason}; selector {stop.selects}: {holds}; {stop.fix}"
        yield Row(label="budgets", text=text)
    yield from _capacity(assessment)
    for note in assessment.notes:
        text = f"{note.message} [{note.code}]: {_some_names(note.objects)}; {note.fix}"
        yield Row(label="note", text=text)
    for blocker in assessment.blockers:
        text = f"{blocker.message} [{blocker.code}]"
        if blocker.objects:
            text = f"{text}: {_some_names(blocker.objects)}"
        yield Row(label="blocker", text=text)
        if blocker.fix:
            yield Row(label="fix", text=blocker.fix)
    if not assessment.blockers:
        yield Row(label="blockers", text="none")
    if step := next_step(assessment):
        yield Row(label="next", text=step)


def kept_texts(assessment: Assessment) -> Iterator[str]:
    """Yield the texts on the names of `translation.keep`, and on the nodes and workloads that stay with them."""
    if assessment.kept:
        yield f"translation.keep leaves {', '.join(assessment.kept)} with their device plugin: pods keep these keys"
    yield from remaining_texts(assessment.remaining)


def keep_texts(assessment: Assessment) -> Iterator[str]:
    """Yield a text on each name that `translation.keep` may have, so that workloads move with their GPUs."""
    for name, workloads in assessment.capacity.keys_to_keep.items():
        is_resource = "/" in name
        cause = f"nothing translates {name}" if is_resource else f"{name} has no DRA driver here"
        which = "if that is no GPU of the node, " if is_resource else ""
        yield (
            f"{cause}, so plan holds {_some_names(workloads)}: {which}translation.keep: [{name}] of the settings leaves it "
            "with its device plugin, beside claims for the GPUs; assess and plan read it with --settings"
        )


def scheduler_texts(workloads: Iterable[AssessedWorkload]) -> Iterator[str]:
    """Yield a text on each scheduler that workloads leave once their namespaces are opted in."""
    leaving: dict[str, list[str]] = {}
    for workload in workloads:
        for scheduler in workload.left_schedulers:
            leaving.setdefault(scheduler, []).append(workload.key.reference)
    for scheduler, references in sorted(leaving.items()):
        verb = "leaves" if len(references) == 1 else "leave"
        yield (
            f"{_some_names(references)} {verb} {quote_text(scheduler)} once opted in ({Code.SCHEDULER_REPLACED}): its queues, fair "
            f"share and gangs no longer apply; {LEFT_SCHEDULER_FIX}"
        )


def mapping_texts(assessment: Assessment) -> Iterator[str]:
    """Yield a text on each DeviceClass that gives other devices than the resource name means that it maps."""
    for mapping in assessment.wide_mappings:
        yield (
            f"DeviceClass {mapping.device_class} maps {mapping.resource}, and {mapping.reason} ({Code.MAPPING_TOO_WIDE}): "
            "pods without claims get any of its devices; prepare.sh of a plan takes the name from it, and all here is as if "
            "that was done"
        )


def _outcomes(assessment: Assessment) -> Iterator[Row]:
    totals = assessment.totals()
    number = len(assessment.workloads)
    pods = sum(workload.pods for workload in assessment.workloads)
    yield Row(
        label="workloads",
        text=f"{count_text(number, 'workload')} with devices, {count_text(pods, 'pod')}",
    )
    for outcome in Outcome:
        if totals[outcome.value]:
            text = f"{totals[outcome.value]} {outcome.value}: {_MEANINGS[outcome]}"
            yield Row(label="workloads", text=text)
    if suspended := suspended_text(assessment.workloads):
        yield Row(label="suspended", text=suspended)
    if next_runs := next_runs_text(assessment.workloads):
        yield Row(label="next runs", text=next_runs)
    if totals[Outcome.NATIVE.value]:
        yield Row(label="native", text=native_costs(assessment.components))


def next_step(assessment: Assessment) -> str:
    """Return the next step after an assessment; empty if there is nothing to move."""
    if not assessment.workloads:
        return ""
    return _NEXT_BLOCKED if assessment.blockers else _NEXT


def _quotas(assessment: Assessment) -> Iterator[Row]:
    """Yield the quotas to convert, the lines without one for claims, and those to remove."""
    if quotas := assessment.quotas_to_convert:
        text = f"{count_text(len(quotas), 'quota')} to convert: {_some_names(quotas)}"
        yield Row(label="quotas", text=f"{text}; {QUOTAS_STEP}")
    for reference, lines in assessment.quotas_left.items():
        for line, reason in lines.items():
            text = f"{reference}: {line} counts no pods with claims, and no line can be added: {reason}"
            yield Row(label="quotas", text=text)
    for entry in assessment.replaced_lines:
        yield Row(label="quotas", text=replaced_text(entry))


def _readers(assessment: Assessment) -> Iterator[Row]:
    """Yield the other systems that count device keys, those with the same keys in one row."""
    mapped = frozenset[str]().union(*(workload.classes for workload in assessment.workloads))
    names_by_text: dict[str, list[str]] = {}
    for reader, keys in assessment.readers.items():
        counts_mapped = reader.startswith("ResourceQuota/") and not mapped.isdisjoint(keys)
        unless = ", unless their class maps the key" if counts_mapped else ""
        # KAI's scheduler counts claims for GPUs from 0.13 on; Volcano's has a Queue of that name, too.
        unless = _UNLESS_KEPT if reader.startswith("Queue/") else unless
        text = f"{', '.join(keys)}: not for pods with claims{unless}"
        names_by_text.setdefault(text, []).append(reader)
    for text, names in names_by_text.items():
        verb = "counts" if len(names) == 1 else "count"
        yield Row(label="readers", text=f"{_some_names(names)} {verb} {text}")


def _nodes(assessment: Assessment) -> Iterator[Row]:
    if not assessment.nodes:
        yield Row(label="nodes", text="no node is known to have devices")
    by_source = Counter(node.source for node in assessment.nodes if node.source is not None)
    for source, number in sorted(by_source.items()):
        own = [node for node in assessment.nodes if node.source is source]
        legacy = sum(len(node.legacy) for node in own)
        published_count = sum(node.published for node in own)
        parts = [
            *([f"{count_text(legacy, 'device')} of a legacy system, assumed"] if legacy else []),
            *([f"{count_text(published_count, 'device')} published"] if published_count else []),
            *(
                [f"{unread} cannot be read"]
                if (unread := sum(node.is_unreadable for node in own))
                else []
            ),
        ]
        yield Row(
            label="nodes", text=f"{count_text(number, 'node')}, {source.value}: {', '.join(parts)}"
        )
    forms = Counter((node.mig_size, node.replicas) for node in assessment.nodes)
    for (size, times), number in sorted(forms.items()):
        offer = f"{count_text(number, 'node')} offer{'s' if number == 1 else ''}"
        if size:
            text = (
                f"{offer} MIG devices of {size} under the name of GPUs: plan holds them, since with claims each pod would "
                "wait for a whole one"
            )
            yield Row(label="nodes", text=text)
        elif times > 1:
            text = (
                f"{offer} each GPU {times} times (time slicing or "
                "MPS): plan holds them, since with claims each pod would get a whole one"
            )
            yield Row(label="nodes", text=text)
    by_state: dict[str, list[str]] = {}
    for name, state in assessment.out_of_service.items():
        by_state.setdefault(state, []).append(name)
    for state, names in by_state.items():
        verb = "is" if len(names) == 1 else "are"
        yield Row(
            label="nodes",
            text=f"{join_names(names)} {verb} {state}: plan holds {'it' if len(names) == 1 else 'them'}",
        )
    for keys, number in sorted(Counter(assessment.unknown_devices.values()).items()):
        text = (
            f"{count_text(number, 'node')} with {', '.join(keys)}: which devices a DRA driver would publish is not "
            f"known, and plan holds {'it' if number == 1 else 'them'}"
        )
        yield Row(label="nodes", text=text)


def _losses(workloads: Sequence[AssessedWorkload]) -> Iterator[Row]:
    """Yield each code of a loss with the number of workloads, the most frequent first."""
    fixes: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for workload in workloads:
        if workload.outcome is Outcome.LOSSY:
            counts.update(workload.codes)
            for finding in workload.findings:
                fixes.setdefault(finding.code.value, finding.fix)
    for code, number in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])):
        fix = f"; {fixes[code]}" if fixes[code] else ""
        yield Row(label="losses", text=f"{number}x {code}{fix}")


def _capacity(assessment: Assessment) -> Iterator[Row]:
    capacity = assessment.capacity
    is_assumed = any(node.legacy and not node.published for node in assessment.nodes)
    on = "the assumed inventory" if is_assumed else "the published devices"
    text = f"{capacity.placed} of {count_text(capacity.pods, 'pod')} placed on {on}"
    yield Row(label="capacity", text=text)
    if capacity.unplaced:
        yield Row(label="capacity", text=f"no devices for {_some_names(tuple(capacity.unplaced))}")
    if capacity.not_counted:
        objects = _some_names(capacity.not_counted)
        text = f"not counted, for lack of known devices: {objects}; plan holds those that run, and their nodes"
        yield Row(label="capacity", text=text)


def _workloads(workloads: Sequence[AssessedWorkload]) -> str:
    if not workloads:
        return ""
    return format_table(
        ("WORKLOAD", "PODS", "OUTCOME", "WHY"),
        (
            (
                workload.key.reference,
                workload.pods,
                workload.outcome.value,
                ", ".join(workload.codes) or "-",
            )
            for workload in workloads
        ),
    )


def _some_names(objects: Sequence[str]) -> str:
    # Of what has no namespace, a reference has an empty one.
    return join_names([*map(reference_text, objects)], SHOWN)
