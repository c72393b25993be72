"""Growth of the memory of processes, by samples that are taken at even intervals."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Final

from e2e.processes import Child

GROWTH: Final = 1.3
GROWTH_MIB: Final = 32
"""A process may be so much larger in the last quarter than in the second one."""


def resident_mib(child: Child) -> int:
    """Return the resident memory of a program with all processes that it started; 0 if it has ended."""
    pages = 0
    if (record := child.record) is not None:
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # It has ended.
                fields = (process / "stat").read_text().rpartition(")")[2].split()
                if int(fields[2]) == record.pid:  # It leads the process group.
                    pages += int((process / "statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 2**20


def grown(samples: Sequence[Mapping[str, int]]) -> Mapping[str, Sequence[int]]:
    """Return the processes that were much larger in the last quarter than in the second one.

    What counts is what a process has in two samples in a row: one that is starting another shares its memory
    with it for a moment, which then counts twice.

    Args:
        samples: MiB by name of the process; the processes of the last sample count.

    Returns:
        The most of each quarter, in MiB, of two samples in a row.

    Raises:
        ValueError: There are fewer than four samples, which show nothing.
    """
    quarter = len(samples) // 4
    if not quarter:
        raise ValueError(f"{len(samples)} samples of memory do not show growth")
    early, late = (
        {name: _most([sample.get(name, 0) for sample in part]) for name in samples[-1]}
        for part in (samples[quarter : 2 * quarter], samples[-quarter:])
    )
    return {
        name: (early[name], late[name])
        for name in late
        if late[name] > GROWTH * early[name] + GROWTH_MIB
    }


def _most(sizes: Sequence[int]) -> int:
    """Return the most that two neighbours both have; of a single size, that."""
    return max(map(min, pairwise(sizes)), default=sizes[0])
