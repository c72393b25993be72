"""A run: so many hostile calls, judged one by one, from one seed."""

import asyncio
import ctypes
import gc
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import _lru_cache_wrapper
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec

from testing.fuzz.calls import Call, Calls, largest, post_call
from testing.fuzz.endpoint import Answer, Stand, standing
from testing.fuzz.judgement import (
    body_of,
    complaints,
    cost_complaints,
    patched,
    response_of,
    reviewed_again,
    sent_request,
)
from testing.fuzz.reviews import origins, places

ORIGINS: Final = 600
"""Pods that hypothesis makes for a run."""
ROUND: Final = 500
"""Reviews that are judged in one place before the next comes."""
THROUGH_TLS: Final = 100
"""One call in so many goes through a socket, too."""
WARM_UP: Final = 0.25
"""Part of a run after which the process should have the memory that it needs."""
MAX_GROWTH_MIB: Final = 48
MAX_HOLD_S: Final = 0.025
"""CPU seconds that one review may hold the event loop, whatever is in it."""
MAX_REPORTED: Final = 20


class Slowest(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """The call that took longest, or held the event loop for longest."""

    cpu_s: float = 0.0
    kind: str = ""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A call that was answered wrongly.

    Attributes:
        number: In its run, from 0.
        place: Of `places`.
    """

    number: int
    place: int
    kind: str
    complaint: str
    call: bytes


class Report(msgspec.Struct, kw_only=True):
    """The result of a run."""

    reviews: int = 0
    again: int = 0
    through_tls: int = 0
    statuses: Counter[str] = msgspec.field(default_factory=Counter)
    kinds: Counter[str] = msgspec.field(default_factory=Counter)
    slowest: Slowest = Slowest()
    longest_hold: Slowest = Slowest()
    growth_mib: float = 0.0
    peak_mib: float = 0.0
    failures: list[Failure] = msgspec.field(default_factory=list)
    complaints: int = 0


def run(seed: int, reviews: int, part: int = 0, *, judges_costs: bool = True) -> Report:
    """Return the result of a run.

    Args:
        seed: The same gives the same calls.
        part: Of several runs with one seed.
        judges_costs: Whether an answer that took too much CPU is wrong, which depends on the machine.
    """
    return asyncio.run(_run(seed, reviews, part, judges_costs))


async def _run(seed: int, reviews: int, part: int, judges_costs: bool) -> Report:
    calls = Calls(Random(f"{seed}/{part}"), origins(seed, ORIGINS))
    report = Report()
    judged_in = places()
    early = 0.0
    async with standing(judged_in) as stand:
        # What large bodies leave behind as holes in the heap comes before all others: no growth.
        for call in largest(Random(seed)):
            await stand.ask(call)
        gc.collect()
        caches = _function_caches()
        gc.freeze()
        for number, call in enumerate(islice(calls, reviews)):
            place = number // ROUND % len(judged_in)
            stand.judge_in(place)
            for complaint in await _complaints_about(stand, call, number, report, judges_costs):
                report.complaints += 1
                if len(report.failures) < MAX_REPORTED:
                    failure = Failure(
                        number=number,
                        place=place,
                        kind=call.kind,
                        complaint=complaint,
                        call=call.bytes,
                    )
                    report.failures.append(failure)
            if number == int(reviews * WARM_UP):
                early = _resident_mib(caches)
        report.growth_mib = _resident_mib(caches) - early
    report.peak_mib = _peak_mib()
    gc.unfreeze()
    return report


async def _complaints_about(
    stand: Stand, call: Call, number: int, report: Report, judges_costs: bool
) -> list[str]:
    """Ask, count, and return what is wrong."""
    answer = await stand.ask(call)
    complaints_ = list(complaints(call, answer, stand.log))
    report.reviews += 1
    report.kinds[call.kind.partition(":")[0]] += 1
    report.statuses[str(answer.status) if answer else "none"] += 1
    if answer is not None:
        report.slowest = max(report.slowest, Slowest(cpu_s=answer.cpu_s, kind=call.kind))
        hold_s = await _hold_s(stand, call, answer)
        report.longest_hold = max(report.longest_hold, Slowest(cpu_s=hold_s, kind=call.kind))
        if answer.status == 200 and not complaints_:
            complaints_ += await _again(stand, call, answer, report)
        if judges_costs:
            complaints_ += cost_complaints(call, answer)
            if hold_s > MAX_HOLD_S:
                complaints_.append(f"held the event loop for {hold_s * 1000:.0f} ms")
    if number % THROUGH_TLS == 0 and answer is not None:
        report.through_tls += 1
        other = await stand.ask_over_tls(call)
        complaints_ += [f"through TLS: {fault}" for fault in complaints(call, other, stand.log)]
        # Where HTTP is odd, it may depend on the pace whether all of a body came in time.
        if call.is_http and (other is None or other.body != answer.body):
            complaints_.append(f"through TLS another answer: {other.status if other else None}")
    return complaints_


async def _hold_s(stand: Stand, call: Call, answer: Answer) -> float:
    """Return for how long a call holds the event loop; a garbage collection comes only once."""
    if answer.hold_s <= MAX_HOLD_S or not call.is_http:
        return min(answer.hold_s, MAX_HOLD_S)
    log = stand.log
    lines, records = list(log.lines), list(log.records)
    again = await stand.ask(call)
    log.lines[:], log.records[:] = lines, records
    return min(answer.hold_s, again.hold_s if again else answer.hold_s)


async def _again(stand: Stand, call: Call, answer: Answer, report: Report) -> list[str]:
    """Ask about the pod as it was patched, which must be accepted as it is."""
    response = response_of(answer.body)
    if "patch" not in response:
        return []
    request = sent_request(body_of(call))
    body = reviewed_again(request, patched(request["object"], response))
    report.again += 1
    again = await stand.ask(post_call(body, "again"))
    if again is not None and again.status == 413:
        return []  # The patch made it so large.
    if again is None or again.status != 200:
        return [f"its own answer is no pod: {again.body[:300]!r}" if again else "no answer again"]
    if _has_wrong_names(request["object"]):
        return []
    second_response = response_of(again.body)
    if not second_response["allowed"]:
        return [f"refuses its own answer: {second_response['status']['message'][:300]}"]
    return ["changes its own answer again"] if "patch" in second_response else []


def _has_wrong_names(pod: Mapping[str, Any]) -> bool:
    """Return whether a container has no name, or another's; the API server rejects such a pod."""
    fields = (pod["spec"].get(field) or () for field in ("initContainers", "containers"))
    names = [container.get("name") or "" for containers in fields for container in containers]
    return len(set(names)) < len(names) or "" in names


# --- memory ---------------------------------------------------------------------------------------


def _function_caches() -> "Sequence[_lru_cache_wrapper[Any]]":
    """Return the caches of functions; each is bounded by its entries, and full only after long runs."""
    return [found for found in gc.get_objects() if isinstance(found, _lru_cache_wrapper)]


def _resident_mib(caches: "Iterable[_lru_cache_wrapper[Any]]") -> float:
    """Return the memory of the process, without caches and what the allocator has yet to give back."""
    for cache in caches:
        cache.cache_clear()
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    return _status_mib("VmRSS")


def _peak_mib() -> float:
    return _status_mib("VmHWM")


def _status_mib(name: str) -> float:
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[name].split()[0]) / 1024
