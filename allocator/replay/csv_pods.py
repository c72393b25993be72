"""Pods from a CSV, one a row, or all that is wrong with it.

Columns in any order, all but `name` optional: cpu and memory (quantities), class (a DeviceClass; empty for
a pod without devices), count (of devices, 1), capacity (of each device, `milli=500;memory=8Gi`), selector (CEL),
nodeSelector (`zone=a;disk=ssd`), priority, arrival and departure (seconds).
"""

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec

from allocator.nodes.amounts import MAX_INT64, milli_value, whole_value
from allocator.replay.workload import ReplayPod
from kube.api.core import Container, Pod, PodSpec, ResourceRequirements
from kube.api.meta import ObjectMeta
from kube.api.resource import (
    MAX_RESULTS,
    CapacityRequirements,
    CelSelector,
    DeviceClaim,
    DeviceRequest,
    DeviceSelector,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from kube.cel.compile import Environment, compile_selector
from kube.errors import CelError, QuantityError
from kube.quantity import ZERO, Quantity

COLUMNS: Final = (
    "name",
    "cpu",
    "memory",
    "class",
    "count",
    "capacity",
    "selector",
    "nodeSelector",
    "priority",
    "arrival",
    "departure",
)
MAX_ROWS: Final = 1_000_000
MAX_FIELD: Final = 10 * 1024
"""Characters of a field; as many as the API server allows in a selector."""
MAX_FAULTS: Final = 100
"""Faults that are returned; a table of another kind has one in every field."""
MAX_PRIORITY: Final = 1_000_000_000
"""The highest priority of a PriorityClass that users may create."""
NAMESPACE: Final = "default"

_MAX_SHOWN: Final = 40
_MAX_REASON: Final = 200
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,10}")
_SECONDS: Final = re.compile(r"[0-9]{1,15}(?:\.[0-9]{0,9})?")
_T = TypeVar("_T")
_DEVICE_COLUMNS: Final = ("count", "capacity", "selector")


class CsvFault(msgspec.Struct, frozen=True, kw_only=True):
    """A fault in a CSV.

    Attributes:
        line: The line, from 1; 0 where the fault is not in one line.
        column: The column; empty where the fault is not in one column.
        message: The fault.
    """

    line: int
    message: str
    column: str = ""

    def __str__(self) -> str:
        place = f"line {self.line}" if self.line else "the CSV"
        return (
            f"{place}, {self.column}: {self.message}" if self.column else f"{place}: {self.message}"
        )


class _Row(NamedTuple):
    """The values of a line by column, without the empty ones."""

    line: int
    values: Mapping[str, str]


def read_pods(text: str) -> tuple[ReplayPod, ...] | tuple[CsvFault, ...]:
    r"""Return the pods of a CSV in the order of its rows, or its faults, at most `MAX_FAULTS`.

    >>> [pod.name for pod in read_pods("name,cpu\na,500m\n")]
    ['a']
    >>> print(read_pods("name,cpu\na,much\n")[0])
    line 2, cpu: "much" is not a quantity such as 500m, 4 or 16Gi
    """
    table = _Table()
    pods = tuple(table.pods(text))
    return tuple(table.faults[:MAX_FAULTS]) if table.faults else pods


class _Table:
    """The rows of a CSV that are read so far."""

    def __init__(self) -> None:
        self.faults: list[CsvFault] = []
        self._line_of: dict[str, int] = {}
        self._specs: dict[tuple[str | None, ...], ResourceClaimSpec] = {}

    def pods(self, text: str) -> Iterator[ReplayPod]:
        """Yield the pods of the rows without faults."""
        for row in self._rows(text):
            if len(self.faults) >= MAX_FAULTS:
                return
            before = len(self.faults)
            pod = self._pod(row)
            if len(self.faults) == before:
                yield pod

    def _rows(self, text: str) -> Iterator[_Row]:
        reader = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
        try:
            columns = self._columns(next(reader, []))
            if not columns:
                return
            for number, fields in enumerate(reader):
                if number == MAX_ROWS:
                    self._add(reader.line_num, "", f"more than {MAX_ROWS} pods")
                    return
                if not any(map(str.strip, fields)):
                    continue  # Editors leave empty lines behind.
                row = self._row(columns, fields, reader.line_num)
                if row is not None:
                    yield row
        except csv.Error as error:
            self._add(reader.line_num, "", f"not CSV: {error}")

    def _columns(self, header: Sequence[str]) -> Sequence[str]:
        """Return the columns of a header; none if it has faults."""
        columns = [name.strip() for name in header]
        if not any(columns):
            self._add(0, "", f"empty; the first line names the columns, of {', '.join(COLUMNS)}")
            return ()
        for name in sorted(set(columns).difference(COLUMNS)):
            self._add(1, "", f"{_shorten(name)} is not a column, of {', '.join(COLUMNS)}")
        for name in sorted(name for name, count in Counter(columns).items() if count > 1):
            self._add(1, "", f"the column {_shorten(name)} is named twice")
        if "name" not in columns:
            self._add(1, "", "there is no column name")
        return () if self.faults else columns

    def _row(self, columns: Sequence[str], fields: Sequence[str], line: int) -> _Row | None:
        if len(fields) > len(columns):
            self._add(line, "", f"{len(fields)} fields, and the header names {len(columns)}")
            return None
        values = {}
        for name, field in zip(columns, fields, strict=False):
            value = field.strip()
            if len(value) > MAX_FIELD:
                self._add(line, name, f"more than {MAX_FIELD} characters")
            elif value:
                values[name] = value
        return _Row(line, values)

    def _pod(self, row: _Row) -> ReplayPod:
        """Return the pod of a row; unused if the row has faults."""
        name = row.values.get("name", "")
        if not name:
            self._add(row.line, "name", "empty")
        elif name in self._line_of:
            self._add(
                row.line, "name", f"{_shorten(name)} is the pod of line {self._line_of[name]}"
            )
        self._line_of.setdefault(name, row.line)
        requests = {
            column: amount
            for column, read in (("cpu", _read_cpu), ("memory", _read_memory))
            if (amount := self._value(row, column, read)) is not None
        }
        arrival = self._value(row, "arrival", _read_seconds)
        departure = self._value(row, "departure", _read_seconds)
        if departure is not None and departure < (arrival or 0):
            self._add(row.line, "departure", "before the arrival")
        spec = self._spec(row)
        metadata = ObjectMeta(name=name, namespace=NAMESPACE)
        container = Container(name="main", resources=ResourceRequirements(requests=requests))
        pod = Pod(
            metadata=metadata,
            spec=PodSpec(
                containers=(container,), node_selector=self._value(row, "nodeSelector", _read_pairs)
            ),
        )
        return ReplayPod(
            pod=pod,
            claims=() if spec is None else (ResourceClaim(metadata=metadata, spec=spec),),
            priority=self._value(row, "priority", _read_priority) or 0,
            arrival=arrival,
            departure=departure,
            line=row.line,
        )

    def _spec(self, row: _Row) -> ResourceClaimSpec | None:
        """Return the claim of a row, one object for all that are alike; None without devices."""
        device_class = row.values.get("class")
        if device_class is None:
            for column in _DEVICE_COLUMNS:
                if column in row.values:
                    self._add(row.line, column, "a pod without class has no devices")
            return None
        key = (device_class, *(row.values.get(column) for column in _DEVICE_COLUMNS))
        if key not in self._specs:
            before = len(self.faults)
            spec = self._new_spec(row, device_class)
            if len(self.faults) > before:
                return spec
            self._specs[key] = spec
        return self._specs[key]

    def _new_spec(self, row: _Row, device_class: str) -> ResourceClaimSpec:
        selector = self._value(row, "selector", _read_selector)
        amounts = self._value(row, "capacity", _read_amounts)
        exactly = ExactDeviceRequest(
            device_class_name=device_class,
            count=self._value(row, "count", _read_count) or 1,
            capacity=None if amounts is None else CapacityRequirements(requests=amounts),
            selectors=None
            if selector is None
            else (DeviceSelector(cel=CelSelector(expression=selector)),),
        )
        request = DeviceRequest(name="devices", exactly=exactly)
        return ResourceClaimSpec(devices=DeviceClaim(requests=(request,)))

    def _value(self, row: _Row, column: str, read: Callable[[str], _T]) -> _T | None:
        """Return the value of a column; None if it is empty or has a fault, and record the fault."""
        text = row.values.get(column)
        if text is None:
            return None
        try:
            return read(text)
        except ValueError as error:
            self._add(row.line, column, str(error))
            return None

    def _add(self, line: int, column: str, message: str) -> None:
        self.faults.append(CsvFault(line=line, column=column, message=message))


# --- values: each raises ValueError with what is wrong --------------------------------------------


def _read_quantity(text: str) -> Quantity:
    try:
        quantity = Quantity(text)
    except QuantityError as error:
        raise ValueError(f"{_shorten(text)} is not a quantity such as 500m, 4 or 16Gi") from error
    if quantity.nanos < 0:
        raise ValueError(f"{_shorten(text)} is negative")
    return quantity


def _read_cpu(text: str) -> Quantity:
    return _read_counted(text, milli_value, "m")


def _read_memory(text: str) -> Quantity:
    return _read_counted(text, whole_value, " bytes")


def _read_counted(text: str, count: Callable[[Quantity], int], unit: str) -> Quantity:
    """Return a quantity; raises ValueError for one that kube-scheduler counts as nothing."""
    quantity = _read_quantity(text)
    if quantity > ZERO and not count(quantity):
        raise ValueError(
            f"{_shorten(text)} is more than kube-scheduler can count, {MAX_INT64}{unit}"
        )
    return quantity


def _read_amounts(text: str) -> Mapping[str, Quantity]:
    return {name: _read_quantity(value) for name, value in _read_pairs(text).items()}


def _read_pairs(text: str) -> Mapping[str, str]:
    pairs: dict[str, str] = {}
    for part in filter(None, map(str.strip, text.split(";"))):
        name, separator, value = (word.strip() for word in part.partition("="))
        if not name or not separator:
            raise ValueError(f"{_shorten(part)} is not a name and a value such as a=b")
        if name in pairs:
            raise ValueError(f"{_shorten(name)} is named twice")
        pairs[name] = value
    return pairs


def _read_selector(text: str) -> str:
    try:
        compile_selector(text, Environment.STORED)
    except CelError as error:
        raise ValueError(f"CEL: {str(error)[:_MAX_REASON]}") from error
    return text


def _read_count(text: str) -> int:
    return _read_whole(text, 1, MAX_RESULTS)


def _read_priority(text: str) -> int:
    return _read_whole(text, -MAX_PRIORITY, MAX_PRIORITY)


def _read_whole(text: str, least: int, most: int) -> int:
    # No more digits than the bounds have: Python refuses numbers of thousands of digits, and int("1_0") is 10.
    if not _WHOLE.fullmatch(text) or not least <= int(text) <= most:
        raise ValueError(f"{_shorten(text)} is not a whole number from {least} to {most}")
    return int(text)


def _read_seconds(text: str) -> float:
    if not _SECONDS.fullmatch(text):
        raise ValueError(f"{_shorten(text)} is not a number of seconds")
    return float(text)


def _shorten(text: str) -> str:
    return f'"{text}"' if len(text) <= _MAX_SHOWN else f'"{text[:_MAX_SHOWN]}..."'
