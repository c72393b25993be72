"""`-o text|json|yaml`, for commands with an answer that is to be read rather than applied."""

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import click
import msgspec

from answers.model.kinds import API_VERSION
from kube.manifests.dump import dump_yaml
from kube.manifests.scalars import escape_json
from kube.quantity import Quantity, format_amount


class Output(StrEnum):
    """Forms of an answer."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"


class Report(StrEnum):
    """The `kind` of a document; that of `why` is the kind of the object that it is about."""

    ASSESS = "AssessReport"
    BRIDGE = "BridgeReport"
    CHECK = "CheckReport"
    CHECK_UPGRADE = "CheckUpgradeReport"
    EXPLAIN = "ExplainReport"
    FIX = "FixReport"
    INVENTORY = "InventoryReport"
    MATRIX = "MatrixReport"
    PLAN = "PlanReport"
    QUOTA = "QuotaReport"
    QUOTA_STATUS = "QuotaStatusReport"
    REHEARSE = "RehearseReport"
    REPLAY = "ReplayReport"
    SIMULATE = "SimulateReport"
    STATUS = "StatusReport"
    TEST = "TestReport"
    TOP = "TopReport"
    TRANSLATE = "TranslateReport"
    VERIFY = "VerifyReport"
    WAVE = "WaveReport"


def text_or_document(text: str = "to read", **more: str) -> Callable[[Any], Any]:
    """Give a command `-o` as `output`.

    Args:
        text: Describes the text.
        more: Further forms, and what they are for.
    """
    helps = {"text": text, "json, yaml": "for scripts", **more}
    return click.option(
        "-o",
        "--output",
        type=click.Choice([*(form.value for form in Output), *more]),
        default=Output.TEXT.value,
        show_default=True,
        help=" ".join(f"{forms}: {purpose}." for forms, purpose in helps.items()),
    )


def format_document(output: str, document: bytes, kind: Report | None = None) -> str:
    """Return an answer as `-o json` or `-o yaml` prints it, with its kind and version.

    Args:
        document: A JSON object.
        kind: The answer's kind; None where the document says it.
    """
    value = _with_head(document, kind)
    if output == Output.YAML:
        return dump_yaml([value]).removesuffix("\n")
    return format_json(value)


def format_next_document(output: str, document: bytes, kind: Report) -> str:
    """Return one of many answers: with `-o json` a line, with `-o yaml` a document of a stream."""
    if output == Output.YAML:
        return f"---\n{format_document(output, document, kind)}"
    return escape_json(msgspec.json.encode(_with_head(document, kind)).decode())


def _with_head(document: bytes, kind: Report | None) -> dict[str, Any]:
    head = {"apiVersion": API_VERSION, **({} if kind is None else {"kind": kind.value})}
    return {**head, **msgspec.json.decode(document)}


def format_json(value: object) -> str:
    """Return JSON for people and programs, with nothing in it that a terminal obeys."""
    return escape_json(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def encode_readable(value: object) -> bytes:
    """Return the JSON of one of our own values, with amounts as text output has them."""
    return msgspec.json.encode(value, enc_hook=_readable)


def _readable(value: object) -> str:
    return format_amount(value) if isinstance(value, Quantity) else str(value)
