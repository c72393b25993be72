"""The worker: evaluates expressions, and is killed where one takes too long.

`python -m process.selectors.worker` reads questions from standard input and answers on standard
output until its input ends. It opens nothing, and knows nothing but what it is asked.
"""

import math
import resource
import sys
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from kube.cel.compile import compile_selector
from kube.cel.device import device_view
from kube.cel.engine import Names
from kube.errors import CelError
from process.selectors.protocol import (
    HEADER_BYTES,
    Answer,
    Call,
    Compiled,
    Verdict,
    decode_call,
    fault,
    frame,
)

MAX_DATA_BYTES: Final = 192 * 2**20
"""Within the memory limit of the container, which the process that asks needs the most of."""
MAX_CPU_S: Final = 2
"""Of one question; the process that asks waits for less."""


def answer(call: Call) -> Answer:
    """Answer one question."""
    try:
        selector = compile_selector(call.expression, call.environment)
        if call.device is None:
            return Compiled(Names(selector.attributes, selector.capacities, selector.cost))
        return Verdict(selector.matches(device_view(call.driver, call.device)))
    except CelError as error:
        return fault(error)


def serve(questions: BinaryIO, answers: BinaryIO) -> None:
    """Answer questions until there are no more."""
    while len(header := questions.read(HEADER_BYTES)) == HEADER_BYTES:
        _limit_cpu()
        call = decode_call(questions.read(int.from_bytes(header, "big")))
        answers.write(frame(answer(call)))
        answers.flush()


def limit_process() -> None:
    """Bound what this process may take; the soft limit of CPU time moves with each question."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_DATA_BYTES, MAX_DATA_BYTES))
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
