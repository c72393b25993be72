"""DeviceQuotas for quotas of other systems."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from kube.api.core import NAMESPACE_NAME
from kube.api.device_quota import (
    ALERT_THRESHOLD,
    API_VERSION,
    KIND,
    MAX_LEGACY_KEYS,
    MAX_LIMITS,
)
from kube.quantity import ZERO, Quantity
from migration.quotas.changes import LimitOfLines, line_changes
from migration.quotas.model import (
    ClaimMeasure,
    Document,
    FoundQuota,
    MeasuredLine,
    Part,
    QuotaConversion,
    free_name,
    label_of,
)

_TOO_MANY: Final = f"a DeviceQuota has at most {MAX_LIMITS} limits"
_NO_TOTAL: Final = "a cap needs a limit on the total: add what the namespaces may use together"
_NO_DRIVER: Final = "no other line tells whose claims it counts"


class _Counted(NamedTuple):
    """The claims that a limit counts; several lines may be about them."""

    driver: str
    device_class: str = ""
    selectors: tuple[str, ...] = ()
    capacity: str = ""
    counts_claims: bool = False

    @classmethod
    def of(cls, measure: ClaimMeasure) -> "_Counted":
        """Return the claims that a measure is about."""
        return cls(measure.driver, measure.device_class, measure.selectors, measure.capacity)


class _LimitDraft:
    """A limit that lines add to."""

    def __init__(self, name: str, counted: _Counted) -> None:
        self.name = name
        self.entries: list[MeasuredLine] = []
        self.caps: dict[Part, Quantity] = {}
        self.lines: list[str] = []
        self.legacy_keys: dict[str, Document] = {}
        self._counted = counted

    @property
    def of_lines(self) -> LimitOfLines:
        """The lines with the total."""
        return LimitOfLines(name=self.name, entries=tuple(self.entries))

    def document(self, alert_percent: int | None) -> dict[str, Any]:
        """Return the limit as the API has it."""
        counted = self._counted
        measure: dict[str, Any] = {"devices": {}}
        if counted.counts_claims:
            measure = {"claims": {}}
        elif counted.capacity:
            measure = {"capacity": counted.capacity}
        classes = {"deviceClassNames": [counted.device_class]} if counted.device_class else {}
        selectors = [{"cel": {"expression": expression}} for expression in counted.selectors]
        per_request, per_device = (self.caps.get(part) for part in (Part.REQUEST, Part.DEVICE))
        return {
            "name": self.name,
            "driver": counted.driver,
            **classes,
            **({"selectors": selectors} if selectors else {}),
            **measure,
            "max": str(self.of_lines.amount),
            **({"perRequest": str(per_request)} if per_request is not None else {}),
            **({"perDevice": str(per_device)} if per_device is not None else {}),
            **(
                {"alertThresholdPercent": alert_percent}
                if alert_percent not in (None, ALERT_THRESHOLD)
                else {}
            ),
            **(
                {"legacyKeys": [dict(entry) for entry in self.legacy_keys.values()]}
                if self.legacy_keys
                else {}
            ),
        }


class _Drafts:
    """The limits of one DeviceQuota."""

    def __init__(self) -> None:
        self.missing: dict[str, str] = {}
        self.counted_pods: set[str] = set()
        self.uncounted_pods: set[str] = set()
        self._by_counted: dict[_Counted, _LimitDraft] = {}

    @property
    def limits(self) -> tuple[_LimitDraft, ...]:
        """Return all limits, in order."""
        return tuple(self._by_counted.values())

    def add_total(self, entry: MeasuredLine, counted: _Counted) -> None:
        """Limit the total of some claims; several lines may be about it."""
        draft = self._by_counted.get(counted)
        if draft is None:
            noun = counted.capacity or entry.line.key.rpartition("/")[2] or "claims"
            name = free_name(label_of(noun), {draft.name for draft in self.limits})
            draft = self._by_counted[counted] = _LimitDraft(name, counted)
        draft.entries.append(entry)
        draft.lines.append(entry.line.name)
        if entry.legacy_key is not None and len(draft.legacy_keys) < MAX_LEGACY_KEYS:
            draft.legacy_keys.setdefault(entry.line.key, entry.legacy_key)
            self.counted_pods.add(entry.line.name)
        else:
            self.uncounted_pods.add(entry.line.name)

    def add_claims(self, entry: MeasuredLine) -> None:
        """Limit the number of claims of each driver that another limit is about."""
        drivers = sorted({counted.driver for counted in self._by_counted})
        for driver in drivers:
            self.add_total(entry, _Counted(driver, counts_claims=True))
        if not drivers:
            self.missing[entry.line.name] = _NO_DRIVER

    def add_cap(self, entry: MeasuredLine, counted: _Counted) -> None:
        """Limit a request or a device, if there is a limit on the total."""
        draft = self._by_counted.get(counted)
        if draft is None:
            self.missing[entry.line.name] = _NO_TOTAL
            return
        draft.caps[entry.line.part] = entry.amount
        draft.lines.append(entry.line.name)


def to_device_quota(
    quota: FoundQuota, lines: Iterable[MeasuredLine], missing: Mapping[str, str]
) -> QuotaConversion:
    """Return the DeviceQuota for a quota.

    Args:
        lines: Its lines, measured.
        missing: Lines that measure nothing to the reason.
    """
    entries = tuple(lines)
    not_convertible = {**quota.dropped, **missing}
    if not quota.namespaces:
        unknown = {entry.line.name: quota.unknown_namespaces for entry in entries}
        return QuotaConversion(object=quota.object, not_convertible=not_convertible | unknown)
    drafts = _Drafts()
    for entry in entries:
        if entry.measure is not None and entry.line.part is Part.TOTAL:
            drafts.add_total(entry, _Counted.of(entry.measure))
    for entry in entries:
        if entry.measure is None:
            drafts.add_claims(entry)
        elif entry.line.part is not Part.TOTAL:
            drafts.add_cap(entry, _Counted.of(entry.measure))
    limits = drafts.limits[:MAX_LIMITS]
    names: dict[str, list[str]] = {}
    for draft in limits:
        for line in draft.lines:
            names.setdefault(line, []).append(draft.name)
    converted = {
        line: f"{'limit' if len(parts) == 1 else 'limits'} {', '.join(parts)} of DeviceQuota {quota.name}"
        f"{_others_text(limits, line)}"
        for line, parts in names.items()
    }
    of_lines = [draft.of_lines for draft in limits]
    too_many = {line: _TOO_MANY for draft in drafts.limits[MAX_LIMITS:] for line in draft.lines}
    uncapped = {line: why for line, why in drafts.missing.items() if line not in converted}
    return QuotaConversion(
        object=quota.object,
        counts_pods=quota.is_core,
        replaced=tuple(
            line
            for line in converted
            if quota.is_core
            and line in drafts.counted_pods - drafts.uncounted_pods - too_many.keys()
        ),
        changes=line_changes(quota, of_lines),
        converted=converted,
        not_convertible=not_convertible | uncapped | too_many,
        documents=(_document(quota, limits),) if limits else (),
    )


def _others_text(limits: Iterable[_LimitDraft], line: str) -> str:
    """Return the parts of limits for pods that a line did not count, in words; empty without any."""
    texts = [
        f"{beside} of limit {draft.name}"
        for draft in limits
        if (beside := draft.of_lines.beside) > ZERO and line in draft.lines
    ]
    return (
        f"; {', '.join(texts)} for pods with other keys, twice what they use today" if texts else ""
    )


def _document(quota: FoundQuota, limits: Iterable[_LimitDraft]) -> Document:
    names = list(quota.namespaces)
    selector: dict[str, Any] = (
        {"matchLabels": {NAMESPACE_NAME: names[0]}}
        if len(names) == 1
        else {"matchExpressions": [{"key": NAMESPACE_NAME, "operator": "In", "values": names}]}
    )
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": quota.name},
        "spec": {
            "namespaceSelector": selector,
            "limits": [draft.document(quota.alert_percent) for draft in limits],
        },
    }
