"""The decisions of `drawbridge fix`: amounts and names that `check` finds wrong become those that it names. Pure.

A fix is proved by another check of the changed objects: its finding is gone, and no object has an
error that it did not have before. A fix may uncover a further finding, such as a memory in the right
unit that no device has, so what it uncovers is fixed with it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from findings.checked_object import CheckedObject
from findings.equal_requests import equal_request, request_of, value_at
from findings.field_path import FieldPath, Key
from findings.finding import Code, Finding
from findings.fitting import Correction, Renaming, Replacement, Rewrite
from kube.manifests.source import SourceObject
from kube.quantity import Format, Quantity

Document = Mapping[str, Any]
Check = Callable[[Sequence[SourceObject]], Sequence[CheckedObject]]
"""Returns the findings on manifests, one entry for each of them."""

MAX_ROUNDS: Final = 1_000
"""Sets of fixes that are tried, each of them with a few checks of all manifests. Each round proves some
fixes, or gives some up, so this bounds nothing but fixes that would undo one another."""
_ANNOTATIONS: Final = ("annotations",)
_MAX_STEPS: Final = 4
"""Checks in which the fixes of one set may uncover further findings."""

_Place = tuple[Code, FieldPath]
"""A finding, whatever its words are."""


class AppliedFix(msgspec.Struct, frozen=True, kw_only=True):
    """An amount, a text or the name of a key that was changed.

    Attributes:
        code: The code of the finding that it cures.
        path: The place in the object, with the key as it was.
        before: The amount or the text as it was written, or the key; None where there was none.
        after: The same as it is now.
    """

    code: Code
    path: FieldPath
    before: str | None
    after: str


class FixedObject(msgspec.Struct, frozen=True, kw_only=True):
    """An object with its fixes.

    Attributes:
        checked: The object as it is now, with the findings that it still has.
        before: The object as it was given.
        fixes: The fixes in the order in which they were made; of one place only the last.
    """

    checked: CheckedObject
    before: SourceObject
    fixes: tuple[AppliedFix, ...] = ()


class _Trial(NamedTuple):
    """Fixes of one object, and the findings that they are to cure."""

    object: FixedObject
    cured: frozenset[_Place]


def fix_objects(
    manifests: Sequence[SourceObject],
    check: Check,
    *,
    with_warnings: bool = False,
    max_rounds: int = MAX_ROUNDS,
) -> tuple[FixedObject, ...]:
    """Return all objects, fixed if a fix is proved, in order.

    Args:
        with_warnings: Also lower amounts where the cluster accepts the larger ones with a warning.
        max_rounds: Sets of fixes to try.
    """
    objects = tuple(
        FixedObject(checked=checked, before=checked.source) for checked in check(manifests)
    )
    unproved: set[tuple[int, _Place]] = set()
    # All fixes of an object together, as those of two containers may prove only together; where that
    # fails, the first one alone, and then the others together.
    one_by_one: set[int] = set()
    for _ in range(max_rounds):
        chosen = _choose(objects, unproved, one_by_one, with_warnings=with_warnings)
        if not chosen:
            break
        trials = _try(objects, chosen, check, with_warnings=with_warnings)
        failed = {
            index for index in chosen if not _is_proved(objects[index], trials[index])
        } or _affected(objects, trials, chosen)
        proved = chosen.keys() - failed
        if proved:
            objects = _accept(objects, trials, proved, check)
            # One fix may make another one provable. To begin anew makes a second call find nothing.
            unproved.clear()
            one_by_one.clear()
            continue
        for index in failed:
            first, *others = chosen[index]
            if others:
                one_by_one.add(index)
            else:
                one_by_one.discard(index)
                unproved.add((index, _place(first)))
    return objects


def _choose(
    objects: Sequence[FixedObject],
    unproved: set[tuple[int, _Place]],
    one_by_one: set[int],
    *,
    with_warnings: bool,
) -> dict[int, tuple[Finding, ...]]:
    """Return the findings to cure next, by the index of their object."""
    chosen: dict[int, tuple[Finding, ...]] = {}
    for index, fixed in enumerate(objects):
        findings = tuple(
            finding
            for finding in _correctable(fixed.checked, with_warnings=with_warnings)
            if (index, _place(finding)) not in unproved
        )
        if findings:
            chosen[index] = findings[:1] if index in one_by_one else findings
    return chosen


def _correctable(checked: CheckedObject, *, with_warnings: bool) -> tuple[Finding, ...]:
    return tuple(
        finding
        for finding in checked.findings
        if (finding.corrections or finding.rewrites)
        # A larger amount that is only warned about may be right, and is in use elsewhere or unknown yet.
        and (with_warnings or finding.fitting is None or _is_final(finding))
    )


def _is_final(finding: Finding) -> bool:
    """Return True if the amount is too large for good: of a quota that is full, more will be left."""
    return finding.is_error and not (finding.fitting is not None and finding.fitting.quota)


def _try(
    objects: Sequence[FixedObject],
    chosen: Mapping[int, tuple[Finding, ...]],
    check: Check,
    *,
    with_warnings: bool,
) -> list[_Trial]:
    """Return the objects with the chosen fixes, and with those that these uncover."""
    trials = [_Trial(fixed, frozenset()) for fixed in objects]
    pending = dict(chosen)
    for _ in range(_MAX_STEPS):
        for index, findings in pending.items():
            cured = trials[index].cured | {_place(finding) for finding in findings}
            trials[index] = _Trial(_with_fixes(trials[index].object, findings), cured)
        trials = _checked(trials, check)
        pending = {
            index: uncovered
            for index in pending
            if (uncovered := _uncovered(objects[index], trials[index], with_warnings=with_warnings))
        }
        if not pending:
            break
    return trials


def _uncovered(before: FixedObject, trial: _Trial, *, with_warnings: bool) -> tuple[Finding, ...]:
    """Return the findings with fixes that were not there before."""
    known_places = {_place(finding) for finding in before.checked.findings} | trial.cured
    return tuple(
        finding
        for finding in _correctable(trial.object.checked, with_warnings=with_warnings)
        if _place(finding) not in known_places
    )


def _checked(trials: Sequence[_Trial], check: Check) -> list[_Trial]:
    results = check([trial.object.checked.source for trial in trials])
    return [
        trial._replace(object=replace(trial.object, checked=checked))
        for trial, checked in zip(trials, results, strict=True)
    ]


def _accept(
    objects: Sequence[FixedObject], trials: Sequence[_Trial], proved: set[int], check: Check
) -> tuple[FixedObject, ...]:
    """Return the objects with the fixes that are proved, and the findings on them then."""
    accepted = [
        _Trial(trials[index].object if index in proved else fixed, frozenset())
        for index, fixed in enumerate(objects)
    ]
    return tuple(trial.object for trial in _checked(accepted, check))


def _is_proved(before: FixedObject, trial: _Trial) -> bool:
    """Return True if the findings are gone, and no error has come."""
    places = {_place(finding) for finding in trial.object.checked.findings}
    is_changed = trial.object.checked.source.document != before.checked.source.document
    return is_changed and not trial.cured & places and not _new_errors(before, trial)


def _affected(
    objects: Sequence[FixedObject],
    trials: Sequence[_Trial],
    chosen: Mapping[int, tuple[Finding, ...]],
) -> set[int]:
    """Return all chosen objects if another one has a new error by their fixes; else none."""
    others = [index for index in range(len(objects)) if index not in chosen]
    is_affected = any(_new_errors(objects[index], trials[index]) for index in others)
    return set(chosen) if is_affected else set()


def _new_errors(before: FixedObject, trial: _Trial) -> set[_Place]:
    return _errors(trial.object.checked) - _errors(before.checked)


def _errors(checked: CheckedObject) -> set[_Place]:
    return {_place(finding) for finding in checked.findings if finding.is_error}


def _place(finding: Finding) -> _Place:
    return finding.code, finding.path


# --- one object -----------------------------------------------------------------------------------


def _with_fixes(fixed: FixedObject, findings: Sequence[Finding]) -> FixedObject:
    """Return the object with the amounts of the fixes; its findings are those from before."""
    source = fixed.checked.source
    fixes = {fix.path: fix for fix in fixed.fixes}
    changed_paths: set[FieldPath] = set()
    for finding in findings:
        for path, amount in _amounts(source.document, finding.corrections):
            # Findings with one cause, such as those of two claims, share their fix.
            if path in changed_paths:
                continue
            changed_paths.add(path)
            old = value_at(source.document, path)
            value = _amount_like(old, amount)
            if path.steps[-2:-1] == _ANNOTATIONS:
                value = str(value)
            if not _has_place(source.document, path.steps):
                continue
            source = replace(source, document=_with_value_at(source.document, path.steps, value))
            before = fixes[path].before if path in fixes else _text(old)
            fixes[path] = AppliedFix(code=finding.code, path=path, before=before, after=str(value))
        for rewrite in _rewrites(source.document, finding.rewrites):
            if rewrite.path in changed_paths:
                continue
            document = _rewritten(source.document, rewrite)
            if document is None:
                continue
            changed_paths.add(rewrite.path)
            source = replace(source, document=document)
            fixes[rewrite.path] = _applied(finding.code, rewrite)
    checked = replace(fixed.checked, source=source)
    return replace(fixed, checked=checked, fixes=tuple(fixes.values()))


def _amounts(
    document: Document, corrections: Sequence[Correction]
) -> list[tuple[FieldPath, Quantity]]:
    """Return the amounts to write; that of a limit also if an equal request has the old one."""
    amounts = []
    for correction in corrections:
        amounts.append((correction.path, correction.amount))
        request = equal_request(document, correction.path)
        if request is not None:
            amounts.append((request, correction.amount))
    return amounts


def _rewrites(document: Document, rewrites: Sequence[Rewrite]) -> Iterator[Rewrite]:
    """Yield the texts to change; the name of a limit also in the requests."""
    for rewrite in rewrites:
        yield rewrite
        request = request_of(rewrite.path) if isinstance(rewrite, Renaming) else None
        if request is not None and value_at(document, request) is not None:
            yield replace(rewrite, path=request)


def _rewritten(document: Document, rewrite: Rewrite) -> Document | None:
    """Return a document with another text; None if the document has a different text to replace."""
    *parents, last = rewrite.path.steps
    if isinstance(rewrite, Replacement):
        if value_at(document, rewrite.path) != rewrite.before:
            return None
        changed: Document = _with_value_at(document, rewrite.path.steps, rewrite.after)
        return changed
    name = last.name if isinstance(last, Key) else last
    siblings = value_at(document, FieldPath(tuple(parents)))
    if not isinstance(siblings, dict) or name not in siblings or rewrite.name in siblings:
        return None
    renamed = {rewrite.name if key == name else key: value for key, value in siblings.items()}
    result: Document = _with_value_at(document, parents, renamed)
    return result


def _applied(code: Code, rewrite: Rewrite) -> AppliedFix:
    if isinstance(rewrite, Replacement):
        return AppliedFix(code=code, path=rewrite.path, before=rewrite.before, after=rewrite.after)
    last = rewrite.path.steps[-1]
    name = last.name if isinstance(last, Key) else str(last)
    return AppliedFix(code=code, path=rewrite.path, before=name, after=rewrite.name)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _amount_like(old: Any, amount: Quantity) -> int | str:
    """Return an amount as a manifest has it: a number, or text if its author wrote text.

    >>> _amount_like(200000, Quantity("80k")), _amount_like("200000", Quantity("80k"))
    (80000, '80000')
    >>> _amount_like("8Gi", Quantity(8192)), _amount_like("100Gi", Quantity("80Gi"))
    (8192, '80Gi')
    """
    if amount.format is Format.BINARY or not amount.is_whole:
        return str(amount)
    is_number_in_quotes = isinstance(old, str) and old.isdecimal()
    return str(int(amount)) if is_number_in_quotes else int(amount)


def _has_place(value: Any, steps: Sequence[str | int | Key]) -> bool:
    """Return True if a path leads through maps and items that are there, or maps that can be made."""
    if not steps:
        return not isinstance(value, dict | list)
    first, *rest = steps
    if isinstance(first, int):
        has_item = isinstance(value, list) and first < len(value)
        return has_item and _has_place(value[first], rest)
    name = first.name if isinstance(first, Key) else first
    return isinstance(value or {}, dict) and _has_place((value or {}).get(name), rest)


def _with_value_at(value: Any, steps: Sequence[str | int | Key], new: Any) -> Any:
    """Return a document with another value at a path; maps that are missing on the way are made."""
    if not steps:
        return new
    first, *rest = steps
    if isinstance(first, int):
        items = list(value)
        items[first] = _with_value_at(items[first], rest, new)
        return items
    name = first.name if isinstance(first, Key) else first
    return {**(value or {}), name: _with_value_at((value or {}).get(name), rest, new)}
