"""`python -m driver state`: prints the node's prepared claims next to the API server's state."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from driver.commands.driver import read_boot_id
from driver.model.record import Record
from driver.model.settings import Settings
from driver.model.steps import ignore_step
from driver.node.cdi_folder import CdiFolder
from driver.node.checkpoint_file import CheckpointFile
from driver.plan.driver_taints import is_released
from driver.plan.prepare import Refusal, read_claim
from findings.text import printable
from kube.api.urls import RESOURCE_CLAIMS
from kube.client.client import Client
from kube.errors import KubeError, NotFound
from process.running.command import Process

HEADER = ("CLAIM", "STATE", "DEVICE", "REQUEST", "SHARE", "PODS", "CDI", "API")


async def print_state(process: Process[Settings]) -> None:
    """Print a line per device of each prepared claim; changes nothing.

    Raises:
        ConfigError: There is no way to the API server, or no such node.
    """
    settings = process.settings.driver
    checkpoint = CheckpointFile(settings.state, read_boot_id(settings), ignore_step)
    specs = CdiFolder(Path(settings.cdi_directory), settings.name, ignore_step).boots()
    for aside in checkpoint.set_aside():
        sys.stdout.write(f"nothing is prepared while {aside} is there: it cannot be read\n")
    rows: list[tuple[str, ...]] = [HEADER]
    async with await process.client() as client:
        for record in checkpoint.load().claims.values():
            api_state = await _read_api_state(client, record)
            rows += _rows(record, "yes" if record.uid in specs else "missing", api_state)
    for line in align_columns(rows):
        sys.stdout.write(f"{line}\n")


async def _read_api_state(client: Client, record: Record) -> str:
    try:
        raw = await client.get(
            RESOURCE_CLAIMS, record.name, msgspec.Raw, namespace=record.namespace
        )
    except NotFound:
        return "gone"
    except KubeError as error:
        return f"unknown: {error}"
    claim = read_claim(bytes(raw))
    if isinstance(claim, Refusal):
        return claim.message
    if claim.metadata.uid != record.uid:
        return "another claim of that name"
    return "released" if is_released(record, claim) else "allocated"


def _rows(record: Record, spec: str, api_state: str) -> Iterator[tuple[str, ...]]:
    for result in record.results:
        yield (
            f"{record.namespace}/{record.name}",
            record.state.value,
            f"{result.pool}/{result.device}",
            result.request,
            result.share_id or "-",
            record.pods_text() or "-",
            spec,
            api_state,
        )


def align_columns(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Return rows as lines of a table; control characters are escaped."""
    texts = [tuple(map(printable, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for row in texts:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()
