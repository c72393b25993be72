"""The worker: evaluates expressions, and is killed if one takes too long.

`python -m process.selectors.worker` reads questions from standard input and answers on standard
output until its input ends. It opens nothing, and knows nothing but what it is asked.
"""

import math
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from kube.cel.compile import LocalSelector, compile_in_place
from kube.cel.engine import Names
from kube.cel.projection import decode_projection
from kube.errors import CelError
from process.selectors.protocol import (
    HEADER_BYTES,
    Answer,
    Compiled,
    Fault,
    Question,
    Rejected,
    Verdicts,
    decode_question,
    describe_fault,
    frame,
)

MAX_DATA_BYTES: Final = 192 * 2**20
"""The limit of the worker within that of the container; the process that asks needs the most of it."""
WORN_KIB: Final = 112 * 2**10
"""Resident memory with which a worker ends after an evaluation: some functions leak, and whose turn it is then
is no fault of an expression."""
MAX_CPU_S: Final = 2
"""The CPU seconds of one question; the process that asks waits for less."""
TELL_S: Final = 0.005
"""CPU time between two answers, so that one evaluation that takes long is known by its silence."""
NICE: Final = 5
"""The process that asks, and renews its Lease, comes first."""


def resident_kib() -> int:
    """Return the resident memory of this process; getrusage(2) begins with that of the process it was forked from."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() // 1024


def answers(
    question: Question,
    clock: Callable[[], float] = time.thread_time,
    resident: Callable[[], int] = resident_kib,
) -> Iterator[Answer]:
    """Yield the answers to one question.

    Args:
        clock: CPU seconds.
        resident: KiB that this process holds.
    """
    try:
        selector = compile_in_place(question.expression, question.environment)
    except CelError as error:
        yield Rejected(describe_fault(error))
        return
    names = Names(selector.attributes, selector.capacities, selector.cost, selector.charge)
    yield Compiled(names)
    verdicts: list[bool | Fault] = []
    began_s = told_s = clock()
    for projection in question.projections:
        verdicts.append(verdict(selector, projection))
        now_s = clock()
        if now_s - began_s >= question.share_s:
            break
        if now_s - told_s >= TELL_S:
            if resident() >= WORN_KIB:
                break
            yield Verdicts(verdicts, is_last=False)
            verdicts, told_s = [], now_s
    yield Verdicts(verdicts, is_last=True, is_worn=resident() >= WORN_KIB)


def verdict(selector: LocalSelector, projection: bytes) -> bool | Fault:
    """Evaluate an expression on one device."""
    try:
        return selector.matches(decode_projection(projection).view())
    except CelError as error:
        return describe_fault(error)


def serve(questions: BinaryIO, output: BinaryIO) -> None:
    """Answer questions until there are no more, or this process is worn."""
    is_worn = False
    while not is_worn and len(header := questions.read(HEADER_BYTES)) == HEADER_BYTES:
        _limit_cpu()
        question = decode_question(questions.read(int.from_bytes(header, "big")))
        for answer in answers(question):
            output.write(frame(answer))
            output.flush()
            is_worn = isinstance(answer, Verdicts) and answer.is_worn


def limit_process() -> None:
    """Bound the resources of this process; the soft limit of CPU time moves with each question."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_DATA_BYTES, MAX_DATA_BYTES))
    os.nice(NICE)
    with suppress(OSError):  # Where memory is short, the worker goes first.
        Path("/proc/self/oom_score_adj").write_text("1000")


def _limit_cpu() -> None:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    used_s = math.ceil(usage.ru_utime + usage.ru_stime)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (used_s + MAX_CPU_S, hard))


def main() -> None:
    """Serve on standard input and output."""
    limit_process()
    serve(sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    main()
