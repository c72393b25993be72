"""What became of each object, for people: what it asked, what it is now, why, and what is lost."""

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import click
import msgspec

from cli.manifests import Translated
from cli.phrases import requests
from cli.report import printable
from kube.product import REQUEST_ANNOTATION
from webhook.admission import Decision
from webhook.claims import Claim
from webhook.edits import CONTAINER_FIELDS
from webhook.findings import Code, Finding, Severity
from webhook.profile import Profile
from webhook.request import Request, UsedProfile, decode_request
from webhook.vocabularies import arbiter
from webhook.workloads import pod_path, reached

MARGIN: Final = 12
"""Columns before a row's text; its label stands in them."""

NARROWEST: Final = 40
"""Columns. Below, wrapping would make it worse."""

_STYLES: Final[Mapping[str, Mapping[str, Any]]] = {
    "becomes": {"fg": "green"},
    "refused": {"fg": "red", "bold": True},
    "lost": {"fg": "yellow"},
}


Profiles = Mapping[str, Profile]
"""Driver to profile."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is said; an empty label continues the one before."""

    label: str
    text: str


class Paragraph(msgspec.Struct, frozen=True, kw_only=True):
    """What is said about one object.

    Attributes:
        place: File and line.
    """

    title: str
    place: str
    rows: tuple[Row, ...]


def rendered(results: Sequence[Translated], profiles: Profiles, width: int) -> str:
    """Return the whole answer, no line wider than `width` columns (nor narrower than 40 allow)."""
    silent = [result for result in results if not _speaks(result)]
    told = [laid_out(paragraph(each, profiles), width) for each in results if _speaks(each)]
    if silent:
        names = ", ".join(result.reference for result in silent)
        told.append(laid_out_rows([Row(label="unchanged", text=names)], width))
    told.append("\n".join(textwrap.wrap(summary(results), max(width, NARROWEST))))
    return "\n\n".join(told)


def summary(results: Sequence[Translated]) -> str:
    """Return the numbers in one line."""
    refused = sum(result.document is None for result in results)
    changed = sum(result.changed for result in results)
    templates = sum(len(result.templates) for result in results)
    lost = sum(f.severity is Severity.WARNING for result in results for f in result.findings)
    return ", ".join(
        (
            f"{_counted(changed, 'object')} translated with {_counted(templates, 'template')}",
            f"{len(results) - changed - refused} unchanged",
            f"{refused} refused",
            _counted(lost, "warning"),
        )
    )


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _speaks(result: Translated) -> bool:
    changed = result.answer is not None and result.answer.decision is not Decision.UNTOUCHED
    return changed or bool(result.findings)


# --- what is said ---------------------------------------------------------------------------------


def paragraph(result: Translated, profiles: Profiles) -> Paragraph:
    """Return what is said about one object."""
    kind, namespace, name = result.reference.split("/", 2)
    return Paragraph(
        title=f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}",
        place=f"{result.source.source}:{result.source.line}",
        rows=tuple(once_per_label(_rows(result, profiles))),
    )


def once_per_label(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the rows, those without their label that have the one before's."""
    last = ""
    for row in rows:
        yield msgspec.structs.replace(row, label="" if row.label == last else row.label)
        last = row.label


def _rows(result: Translated, profiles: Profiles) -> Iterator[Row]:
    request = _request(result)
    if request is not None and result.answer is not None:
        if result.answer.decision is Decision.ACCEPTED:
            yield Row(
                label="unchanged", text="translated before; its claims derive from what it asked"
            )
        yield from _asked(request, _written(result))
        for claim in result.answer.claims:
            yield from _became(claim)
        if result.answer.claims:
            owned = _owned(request, profiles)
            yield from (Row(label="because", text=_why(used, owned)) for used in request.profiles)
    # What refuses it comes first; what would also have been lost is less urgent.
    for finding in sorted(result.findings, key=lambda finding: not finding.is_error):
        yield from _said(finding)


def _request(result: Translated) -> Request | None:
    """Return the request that the object's pods carry now."""
    path = pod_path(result.source.api_version, result.source.kind)
    if result.document is None or path is None or result.answer is None:
        return None
    _, text = reached(result.document, (*path, "metadata", "annotations", REQUEST_ANNOTATION))
    return decode_request(text) if isinstance(text, str) else None


def _asked(request: Request, written: Mapping[str, Mapping[str, Any]]) -> Iterator[Row]:
    for container in request.containers:
        limits = written.get(container.name, {})
        if not container.limits:
            continue  # It uses the devices that others ask for.
        amounts = (f"{key} {limits.get(key, found)}" for key, found in container.limits.items())
        yield Row(label="asked", text=f"{container.name}: {', '.join(amounts)}")
    for key, value in request.annotations.items():
        yield Row(label="asked", text=f"{key}: {value}")


def _written(result: Translated) -> Mapping[str, Mapping[str, Any]]:
    """Return container name to limits, spelt as the manifest does: 3000, where we say 3k."""
    path = pod_path(result.source.api_version, result.source.kind) or ()
    _, pod = reached(result.source.document, path)
    _, spec = reached(pod, ("spec",))
    containers = [each for f in CONTAINER_FIELDS for each in (spec or {}).get(f) or ()]
    return {
        each.get("name", ""): (each.get("resources") or {}).get("limits") or {}
        for each in containers
    }


def _became(claim: Claim) -> Iterator[Row]:
    users: dict[str, list[str]] = {}
    for use in claim.uses:
        users.setdefault(use.request, []).append(use.container)
    for name, words in requests(claim.spec["spec"]):
        yield Row(label="becomes", text=f"{' and '.join(users[name])}: {words}")
    yield Row(label="template", text=claim.template)


def _owned(request: Request, profiles: Profiles) -> Mapping[str, frozenset[str]]:
    """Return vocabulary to the keys that it owns, with the names that profiles give it."""
    named = {
        used.vocabulary: profiles[used.name].resource_names()
        for used in request.profiles
        if used.name in profiles
    }
    speaking = arbiter.speaking(named)
    return arbiter.divided(request.keys(), [speaking[used.vocabulary] for used in request.profiles])


def _why(used: UsedProfile, owned: Mapping[str, frozenset[str]]) -> str:
    sizes = sorted({s.size for facts in used.facts.values() for s in facts.sizes or ()})
    known = f", which published devices of {' and '.join(map(str, sizes))}" if sizes else ""
    keys = owned[used.vocabulary]
    if keys:
        listed = ", ".join(sorted(keys))
        return f"{used.vocabulary} owns {listed} here; its driver is {used.name}{known}"
    return (
        f"driver {used.name}, which speaks for {used.vocabulary}, has what the keys ask for{known}"
    )


_LABELS: Final[Mapping[Severity, str]] = {
    Severity.ERROR: "refused",
    Severity.WARNING: "lost",
    Severity.INFO: "because",
}


def _said(finding: Finding) -> Iterator[Row]:
    label = "kept" if finding.code in _LEFT_ALONE else _LABELS[finding.severity]
    place = f"{finding.path}: " if finding.path else ""
    yield Row(label=label, text=f"{place}{finding.message}")
    if finding.fix:
        yield Row(label="fix", text=finding.fix)


_LEFT_ALONE: Final = frozenset(
    {
        Code.ALREADY_CONVERTED,
        Code.FOREIGN_SCHEDULER,
        Code.NODE_NAME_SET,
        Code.OPTED_OUT,
        Code.PASSED_THROUGH,
    }
)


# --- how it is laid out ---------------------------------------------------------------------------


def laid_out(told: Paragraph, width: int) -> str:
    """Return a paragraph as lines."""
    title, place = printable(told.title), printable(told.place)
    if len(title) + len(place) + 2 <= width:
        head = click.style(title, bold=True)
        head += f"  {click.style(place, dim=True)}" if place else ""
    else:
        head = "\n".join(
            click.style(line, bold=True) for line in textwrap.wrap(title, max(width, NARROWEST))
        )
    return "\n".join((head, *filter(None, (laid_out_rows(told.rows, width),))))


def laid_out_rows(rows: Iterable[Row], width: int) -> str:
    """Return labelled rows as lines; long ones are wrapped beside their label."""
    lines: list[str] = []
    label = ""
    for row in rows:
        label = row.label or label
        wrapped = textwrap.wrap(
            printable(row.text), max(width, NARROWEST) - MARGIN, break_on_hyphens=False
        )
        for number, line in enumerate(wrapped or [""]):
            shown = f"  {row.label if number == 0 else '':<{MARGIN - 2}}"
            style = _STYLES.get(label)
            lines.append(shown + (click.style(line, **style) if style else line))
    return "\n".join(line.rstrip() for line in lines)
