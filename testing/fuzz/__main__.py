"""`make fuzz`: hostile reviews through the real endpoint, in two processes.

A seed gives the same calls again. What is answered wrongly is written to a folder as it was sent;
`--replay` shows the answers to such a file.

Not guided by coverage. Tried with atheris 3.0: from 300 of these calls it reached 1,201 edges of our
code in 260,000 runs, where 20,000 calls drawn here reach 1,508; from all of them, another 90,000 runs
reached 2 more and found nothing. It would cost a compiled package in every environment.
"""

import argparse
import asyncio
import multiprocessing
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path
from random import SystemRandom
from time import perf_counter
from typing import Final

from testing.fuzz.answer_laws import complaints, cost_complaints
from testing.fuzz.calls import Call
from testing.fuzz.endpoint import standing
from testing.fuzz.reviews import places
from testing.fuzz.run import MAX_ADDED_MIB, MAX_GROWTH_MIB, MEASURES, Costliest, Report, run

PARTS: Final = 2
"""Whatever the machine has, so that a seed means the same everywhere."""
REVIEWS: Final = 100_000
FOLDER: Final = Path(".local") / "fuzz"


def main() -> int:
    """Return the exit status: 1 when anything was answered wrongly."""
    parser = argparse.ArgumentParser(prog="python -m testing.fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(10**6))
    parser.add_argument("--reviews", type=int, default=REVIEWS)
    parser.add_argument("--replay", type=Path, metavar="FILE")
    options = parser.parse_args()
    if options.replay:
        asyncio.run(_replay(options.replay.read_bytes()))
        return 0
    print(f"fuzz: seed {options.seed}, {options.reviews} hostile reviews", flush=True)
    began = perf_counter()
    reports = _reports(options.seed, options.reviews)
    _print(reports, perf_counter() - began)
    return _failed(reports, options.seed)


def _reports(seed: int, reviews: int) -> Sequence[Report]:
    spawning = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(PARTS, mp_context=spawning) as parts:
        return list(parts.map(run, repeat(seed), repeat(-(-reviews // PARTS)), range(PARTS)))


def _print(reports: Sequence[Report], seconds: float) -> None:
    statuses = sum((report.statuses for report in reports), Counter[str]())
    kinds = sum((report.kinds for report in reports), Counter[str]())
    costliest = {name: max(report.costliest[name] for report in reports) for name in MEASURES}
    added = max(report.added for report in reports)
    print(
        f"fuzz: {sum(report.reviews for report in reports)} reviews, "
        f"{sum(report.again for report in reports)} of their answers reviewed again, "
        f"{sum(report.through_tls for report in reports)} asked through TLS, too; {seconds:.0f} s\n"
        f"  answers  {_listed(statuses)}\n"
        f"  kinds    {_listed(kinds)}\n"
        f"{''.join(map(_shown, MEASURES, costliest.values()))}"
        f"  memory   a call adds at most {added.mib:.0f} MiB ({added.kind}), "
        f"all together {max(report.growth_mib for report in reports):.1f} MiB"
    )


def _shown(name: str, costliest: Costliest) -> str:
    return f"  at most  {costliest.seconds * 1000:.0f} ms {MEASURES[name]} ({costliest.kind})\n"


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.most_common())


def _failed(reports: Sequence[Report], seed: int) -> int:
    for part, report in enumerate(reports):
        for failure in report.failures:
            FOLDER.mkdir(parents=True, exist_ok=True)
            file = FOLDER / f"seed-{seed}-{part}-{failure.number}.http"
            file.write_bytes(failure.call)
            print(f"fuzz: {file}: place {failure.place}, {failure.kind}: {failure.complaint}")
    wrong = sum(report.complaints for report in reports)
    if wrong:
        print(f"fuzz: {wrong} wrong; again with SEED={seed} make fuzz")
    has_grown = any(
        report.growth_mib > MAX_GROWTH_MIB or report.added.mib > MAX_ADDED_MIB for report in reports
    )
    if has_grown:
        print(
            f"fuzz: memory grew by more than {MAX_GROWTH_MIB} MiB, or by {MAX_ADDED_MIB} MiB for a call"
        )
    return int(bool(wrong) or has_grown)


async def _replay(call_bytes: bytes) -> None:
    """Show the answers to the bytes of a call, in each place."""
    head, mark, body = call_bytes.partition(b"\r\n\r\n")
    # What is complete is waited for, however large it is.
    is_http = f"Content-Length: {len(body)}\r\n".encode() in head + mark
    call = Call(kind="replayed", head=head + mark, body=body, is_http=is_http)
    validated_in = places()
    async with standing(validated_in) as stand:
        for place in range(len(validated_in)):
            stand.validate_in(place)
            answer = await stand.ask(call)
            print(f"place {place}: {answer.status if answer else 'no answer'}")
            print("  ", answer.body.decode(errors="replace") if answer else "")
            for complaint in (
                *complaints(call, answer, stand.log),
                *(cost_complaints(call, answer.cost) if answer else ()),
            ):
                print("  wrong:", complaint)


if __name__ == "__main__":
    sys.exit(main())
