"""The conversion of quotas, and its notes on standard error."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from answers.model.findings import DEFAULT_NAMESPACE
from cli.output.standard_error import print_line
from cli.reading.cluster_documents import ClusterDocuments
from migration.assessment.assess import assess_cluster
from migration.assessment.assessed_cluster import AssessedCluster
from migration.assessment.assumed import without_mappings
from migration.assessment.capacity import absent_classes
from migration.assessment.chart_names import NameChanges, foreign_mappings
from migration.assessment.device_needs import devices_in_use
from migration.assessment.outcomes import Outcome, claiming_namespaces
from migration.conversion.quota_conversion import ConvertedQuota, Split, convert_quotas, knows_use
from migration.conversion.replaced_lines import (
    ReplacedLines,
    differing_amounts,
    find_replaced_lines,
    read_device_quotas,
    replaced_text,
    without_replaced_lines,
)
from migration.plan.facts.opted_in import labelled_namespaces
from migration.quotas.convert import ConversionInput, convert_rest, convert_to
from migration.quotas.model import QuotaConversion, Target
from quotas.resource_quotas.scopes import devices_of_class
from translation.cluster.snapshot import QuotaPolicy

_SPLITS: Final = {
    Split.WHOLE: "--split whole: each class has the whole amount of a line; where a key may become devices "
    "of several classes, claims together may have more",
    Split.USED: "--split used: each class has what the namespace uses of it and needs to start pods, and an equal part of the "
    "rest; claims together may have what the old line allows",
}
_UNKNOWN_USE: Final = "what namespaces use today is not known, since no pods were read"
_BESIDE: Final = (
    "counts claims only, and an old line pods with its key: until the last of these pods is gone, both may be used "
    "in full; then remove the old line"
)
_TOGETHER: Final = (
    "counts claims and pods with the key together: remove an old line once the DeviceQuota says Enforced=True, so that "
    "neither more nor less is allowed at any time"
)
_OTHERWISE: Final = (
    "counts claims and pods with the key together, and not all of it as the line does, as the notes on it say: remove an old line "
    "once the DeviceQuota says Enforced=True and its amounts are as you want them"
)
_LATER: Final = (
    "prepare.sh of a plan has class {name} map {key}; from then on the line of {key} counts these claims, and that of "
    "the class would limit the same pods once more: apply the quotas of the plan, or convert again after prepare.sh"
)
_NATIVE: Final = (
    "no line is added, since no pod there gets claims of a translation once a plan has DeviceClasses map the names that they "
    "request (prepare.sh), and the lines of these go on to count them; with translation.native: translate they get claims"
)


class QuotaDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The document of `drawbridge quota convert -o json`.

    Attributes:
        split: The way of giving amounts to classes where a key may become devices of several.
        quotas: ResourceQuotas with lines for claims; none where another kind is written.
        conversions: The other objects that are written, and their lines.
        mappings: DeviceClass with a line here to the resource name that `prepare.sh` of a plan has it map. From then
            on the line of that name counts its claims, too, and the class needs none.
        replaced_lines: Lines that were left out, since DeviceQuotas of the cluster count them with claims already.
        native: Quotas without further lines, since all of their namespace's pods keep the names that are counted already.
    """

    split: Split
    quotas: tuple[ConvertedQuota, ...]
    conversions: tuple[QuotaConversion, ...] = ()
    mappings: Mapping[str, str] = {}
    replaced_lines: tuple[ReplacedLines, ...] = ()
    native: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Return True if every line has a counterpart."""
        return not any(quota.not_convertible for quota in self.quotas) and not any(
            entry.not_convertible for entry in self.conversions
        )

    @property
    def documents(self) -> list[dict[str, object]]:
        """Return the objects to apply."""
        quotas = [dict(entry.document) for entry in self.quotas if entry.document is not None]
        return [
            *quotas,
            *(dict(document) for entry in self.conversions for document in entry.documents),
        ]


def convert(
    documents: ClusterDocuments, target: Target | None, split: Split | None
) -> QuotaDocument:
    """Convert the quotas of a cluster.

    Args:
        target: None for ResourceQuotas where they can count claims, and DeviceQuotas for the rest.
        split: None for what the objects allow.
    """
    is_known = knows_use(documents.objects, documents.unreadable)
    chosen = split or (Split.USED if is_known else Split.WHOLE)
    assessed = _assess(documents) if is_known or chosen is Split.USED else None
    changes = _name_changes(documents, assessed)
    cluster = ConversionInput(
        objects=without_mappings(documents.objects, changes.taken_back),
        profiles=documents.profiles,
        options=documents.options,
        namespace=DEFAULT_NAMESPACE,
        usage=devices_in_use(
            *(assessed, documents.objects, DEFAULT_NAMESPACE),
            rejects_uncounted=documents.options.quota is QuotaPolicy.DENY,
        )
        if assessed is not None and chosen is Split.USED
        else None,
        absent=_absent_classes(documents, assessed),
    )
    if target not in (None, Target.CORE):
        conversions = tuple(convert_to(target, cluster))
        return QuotaDocument(split=chosen, quotas=(), conversions=conversions)
    replaced_lines: tuple[ReplacedLines, ...] = ()
    if target is None:
        replaced_lines = find_replaced_lines(cluster.objects, cluster.namespace)
        remaining = without_replaced_lines(cluster.objects, replaced_lines, cluster.namespace)
        cluster = msgspec.structs.replace(cluster, objects=remaining)
    native = _native_namespaces(documents, assessed, changes.mappings)
    converted = convert_quotas(
        *(cluster.objects, cluster.profiles, cluster.options, cluster.namespace),
        cluster.usage,
        absent=cluster.absent,
    )
    quotas = tuple(_as_of_namespace(quota, native) for quota in converted)
    unchanged = tuple(
        quota.object
        for quota, left in zip(converted, quotas, strict=True)
        if len(left.added) < len(quota.added)
    )
    if target is Target.CORE:
        conversions = tuple(convert_to(target, cluster))
        return QuotaDocument(
            split=chosen,
            quotas=quotas,
            conversions=conversions,
            mappings=_later_mappings(changes.mappings, quotas),
            native=unchanged,
        )
    conversions = tuple(convert_rest(quotas, cluster))
    of_quota = {entry.object: entry for entry in conversions}
    return QuotaDocument(
        split=chosen,
        quotas=tuple(_with_rest(quota, of_quota.get(quota.object)) for quota in quotas),
        # What a ResourceQuota's lines lack is told once.
        conversions=tuple(
            msgspec.structs.replace(entry, not_convertible={})
            if entry.object in {quota.object for quota in quotas}
            else entry
            for entry in conversions
        ),
        mappings=_later_mappings(changes.mappings, quotas),
        replaced_lines=replaced_lines,
        native=unchanged,
    )


def _native_namespaces(
    documents: ClusterDocuments, assessed: AssessedCluster | None, mappings: Mapping[str, str]
) -> frozenset[str]:
    """Return the namespaces without pods that get claims of a translation, once a plan has classes map their names.

    Those that are opted in today are none: their pods get claims until then.

    Args:
        mappings: Resource name to the DeviceClass that a plan has map it.
    """
    if assessed is None:
        return frozenset()
    native = {
        workload.key.namespace
        for workload in assessed.workloads
        if workload.pod_outcome is Outcome.NATIVE and not mappings.keys().isdisjoint(workload.keys)
    }
    opted_in = labelled_namespaces(documents.objects, "true")
    return frozenset(native - claiming_namespaces(assessed.workloads) - opted_in)


def _as_of_namespace(quota: ConvertedQuota, native: Collection[str]) -> ConvertedQuota:
    """Return a quota, without further lines if the pods of its namespace keep the names that are counted."""
    if quota.object.split("/")[1] not in native:
        return quota
    return msgspec.structs.replace(quota, added={}, document=None, effects=())


def _with_rest(quota: ConvertedQuota, rest: QuotaConversion | None) -> ConvertedQuota:
    """Return a quota without the lines that something else counts.

    Args:
        rest: The objects that were written beside it, with the reasons that some of its lines are not even there.
    """
    if rest is None:
        return quota
    not_convertible = {
        line: rest.not_convertible.get(line, why)
        for line, why in quota.not_convertible.items()
        if line not in rest.converted
    }
    return msgspec.structs.replace(quota, not_convertible=not_convertible)


def _assess(documents: ClusterDocuments) -> AssessedCluster:
    """Return a cluster, with the claims that its workloads would have today.

    The quotas that are converted reject none of them: a pod that only its quota rejects uses devices all the same.
    """
    return assess_cluster(
        documents.objects,
        documents.profiles,
        msgspec.structs.replace(documents.options, quota=QuotaPolicy.WARN),
        namespace=DEFAULT_NAMESPACE,
        version=documents.version,
        gates=documents.gates,
    )


def _absent_classes(
    documents: ClusterDocuments, assessed: AssessedCluster | None
) -> frozenset[str]:
    """Return the classes of profiles without a trace in the cluster, none of a cluster with unreadable resources."""
    if assessed is None or documents.unreadable:
        return frozenset()
    return absent_classes(assessed.workloads, assessed.state, documents.profiles.values())


def _name_changes(documents: ClusterDocuments, assessed: AssessedCluster | None) -> NameChanges:
    """Return the change of resource names by a plan; without pods nobody uses those of charts, as far as is known."""
    if assessed is None:
        return NameChanges({}, foreign_mappings(documents.objects))
    return assessed.name_changes


def _later_mappings(
    mappings: Mapping[str, str], quotas: Sequence[ConvertedQuota]
) -> dict[str, str]:
    """Return the classes with a line beside the one of a resource name that a plan has them map."""
    lines = {line for quota in quotas for line in quota.added}
    return {name: key for key, name in mappings.items() if devices_of_class(name) in lines}


def print_notes_on(
    answer: QuotaDocument, documents: ClusterDocuments, *, is_split_given: bool
) -> None:
    """Print the facts that the objects do not contain."""
    for quota in answer.quotas:
        for effect in quota.effects:
            print_line(f"note: {quota.object}: {effect.line} now allows {effect.allows}")
        for line, reason in quota.not_convertible.items():
            print_line(f"note: {quota.object}: {line} stays as it is: {reason}")
    quotas = read_device_quotas(documents.objects) if answer.replaced_lines else ()
    for entry in answer.replaced_lines:
        print_line(f"note: {replaced_text(entry)}")
        for text in differing_amounts(entry, quotas):
            print_line(f"note: {text}")
    _print_conversions(answer.conversions)
    if answer.native:
        print_line(f"note: {', '.join(answer.native)}: {_NATIVE}")
    for name, key in answer.mappings.items():
        print_line(f"note: {_LATER.format(name=name, key=key)}")
    _print_old_lines(answer.conversions)
    if any(quota.added for quota in answer.quotas):
        is_known = knows_use(documents.objects, documents.unreadable)
        _print_split(answer.split, is_known=is_known, is_given=is_split_given)
    if not answer.replaced_lines and not answer.native:
        _print_nothing(answer.quotas, answer.conversions)


def _print_conversions(conversions: Sequence[QuotaConversion]) -> None:
    for entry in conversions:
        for line, text in entry.converted.items():
            print_line(f"note: {entry.object}: {line} becomes {text}")
        _print_changes(entry)
        for line, reason in entry.not_convertible.items():
            print_line(f"note: {entry.object}: {line} has no counterpart: {reason}")


def _print_changes(conversion: QuotaConversion) -> None:
    lines_of: dict[tuple[str, str], list[str]] = {}
    for change in conversion.changes:
        lines_of.setdefault((change.direction, change.text), []).append(change.line)
    for (direction, text), lines in lines_of.items():
        allow = f"{', '.join(lines)} {'allows' if len(lines) == 1 else 'allow'} {direction}"
        print_line(f"note: {conversion.object}: {allow}: {text}")


def _print_old_lines(conversions: Sequence[QuotaConversion]) -> None:
    for entry in conversions:
        if not entry.counts_pods:
            continue
        alone = [line for line in entry.converted if line not in entry.replaced]
        changed = {change.line for change in entry.changes}
        same = [line for line in entry.replaced if line not in changed]
        different = [line for line in entry.replaced if line in changed]
        for lines, text in ((same, _TOGETHER), (different, _OTHERWISE), (alone, _BESIDE)):
            if lines:
                print_line(f"note: {entry.object}: what counts for {', '.join(lines)} now {text}")


def _print_split(split: Split, *, is_known: bool, is_given: bool) -> None:
    print_line(f"note: {_SPLITS[split]}")
    if split is Split.USED and not is_known:
        print_line(f"note: {_UNKNOWN_USE}, so every class gets an equal part")
    elif not is_given and not is_known:
        print_line(f"note: {_UNKNOWN_USE}: give a snapshot with the pods")


def _print_nothing(
    quotas: Sequence[ConvertedQuota], conversions: Sequence[QuotaConversion]
) -> None:
    if not quotas and not conversions:
        print_line("note: no ResourceQuota names a device key, and no quota of another scheduler")
    elif not any(quota.added for quota in quotas) and not any(
        entry.documents for entry in conversions
    ):
        print_line("note: nothing to add: every line that can count claims has its line")
