"""NVML recorded on a machine with GPUs, and answered again on one without.

A record is JSON: each call with its arguments, and what came back. Handles are numbered in the order in
which the library gave them out.
"""

import ctypes
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, Final

import pynvml

Call = dict[str, Any]

_PLAIN: Final = (bool, int, float, str, type(None))


class RecordingNvml:
    """The library, with a record of its answers.

    Attributes:
        calls: The calls in their order.
    """

    def __init__(self, nvml: Any) -> None:
        self.calls: list[Call] = []
        self._nvml = nvml
        self._handles: dict[int, int] = {}
        self._objects: list[object] = []

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._nvml, name)
        return value if isinstance(value, (type, *_PLAIN)) else self._recorded(name, value)

    def _recorded(self, name: str, ask: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            record: Call = {"call": name, "arguments": [self._described(a) for a in arguments]}
            self.calls.append(record)
            try:
                answer = ask(*arguments)
            except self._nvml.NVMLError as error:
                record["error"] = error.value
                raise
            record["answer"] = self._described(answer)
            return answer

        return call

    def _described(self, value: Any) -> Any:
        if isinstance(value, _PLAIN):
            return value
        if isinstance(value, bytes):
            return value.decode()
        if isinstance(value, (list, tuple)):
            return [self._described(item) for item in value]
        if isinstance(value, ctypes.Structure):
            names = [field[0] for field in value._fields_]
            return {"fields": {name: self._described(getattr(value, name)) for name in names}}
        if isinstance(value, SimpleNamespace):
            return {"fields": {name: self._described(part) for name, part in vars(value).items()}}
        return {"handle": self._handle(value)}

    def _handle(self, value: object) -> int:
        """Return the number of a handle; two pointers to one place are one handle."""
        if isinstance(value, ctypes._Pointer):
            key = ctypes.cast(value, ctypes.c_void_p).value or 0
        else:
            self._objects.append(value)  # So that no other object gets its identity.
            key = id(value)
        return self._handles.setdefault(key, len(self._handles))


class ReplayedNvml:
    """A library that answers as it did when it was recorded; the last answer to a call stays."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self._answers: dict[tuple[str, str], list[Call]] = {}
        for call in calls:
            self._answers.setdefault((call["call"], str(call["arguments"])), []).append(call)

    def __getattr__(self, name: str) -> Any:
        value = getattr(pynvml, name)
        return value if isinstance(value, (type, *_PLAIN)) else self._replayed(name)

    def _replayed(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            answers = self._answers[name, str([_recorded_form(argument) for argument in arguments])]
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
            if "error" in answer:
                raise pynvml.NVMLError(answer["error"])
            return _replayed_form(answer["answer"])

        return call


class _Handle:
    """Stands for a handle of the record."""

    def __init__(self, number: int) -> None:
        self.number = number


def _recorded_form(value: Any) -> Any:
    return {"handle": value.number} if isinstance(value, _Handle) else value


def _replayed_form(value: Any) -> Any:
    if isinstance(value, list):
        return [_replayed_form(item) for item in value]
    if isinstance(value, dict) and "fields" in value:
        return SimpleNamespace(
            **{name: _replayed_form(part) for name, part in value["fields"].items()}
        )
    return _Handle(value["handle"]) if isinstance(value, dict) else value
