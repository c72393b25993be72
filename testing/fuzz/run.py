"""A run: so many hostile calls, validated one by one, from one seed."""

import asyncio
import ctypes
import gc
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import _lru_cache_wrapper
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec

from testing.counting import slow_by
from testing.fuzz.answer_laws import (
    body_of,
    complaints,
    cost_complaints,
    limits_of,
    patched,
    response_of,
    reviewed_again,
    sent_request,
)
from testing.fuzz.calls import Call, Calls, largest, post_call
from testing.fuzz.endpoint import Answer, Stand, standing
from testing.fuzz.measures import Cost
from testing.fuzz.reviews import origins, places

ORIGINS: Final = 600
"""Pods that hypothesis makes for a run."""
ROUND: Final = 500
"""Reviews that are validated in one place before the next comes."""
THROUGH_TLS: Final = 100
"""One call in so many goes through a socket, too."""
WARM_UP: Final = 0.25
"""Part of a run after which the process should have the memory that it needs."""
MAX_GROWTH_MIB: Final = 24
"""The memory that may be in use at the end and was not after the warm-up, all caches empty."""
MAX_ADDED_MIB: Final = 256
"""The memory that a call may add while it is answered: half of the limit of the webhook's container."""
LARGE_BYTES: Final = 2**20
"""Bytes of a call from which the memory that it adds is measured."""
MAX_BLOCK_BYTES: Final = 512
"""The largest block of Python's own allocator; larger ones come from the C library."""
ATTEMPTS: Final = 3
"""Times that a call is measured which cost too much: a garbage collection comes only once."""
MEASURES: Final = {
    "cpu_s": "of CPU",
    "wall_s": "by the clock",
    "hold_s": "of CPU without a pause of the event loop",
    "stall_s": "by the clock without a pause of the event loop",
}
"""Attributes of `Cost`, and what they count."""
MAX_REPORTED: Final = 20


class Costliest(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """The call that took most by one measure."""

    seconds: float = 0.0
    kind: str = ""


class Largest(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """The call that added most memory while it was answered."""

    mib: float = 0.0
    kind: str = ""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A call that was answered wrongly.

    Attributes:
        number: The number in its run, from 0.
        place: The number of one of `places`.
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
    costliest: dict[str, Costliest] = msgspec.field(
        default_factory=lambda: dict.fromkeys(MEASURES, Costliest())
    )
    growth_mib: float = 0.0
    added: Largest = Largest()
    failures: list[Failure] = msgspec.field(default_factory=list)
    complaints: int = 0


def run(seed: int, reviews: int, part: int = 0, *, checks_costs: bool = True) -> Report:
    """Return the result of a run.

    Args:
        seed: The same gives the same calls.
        part: The number of one of several runs with one seed.
        checks_costs: Whether an answer that took too much CPU is wrong, which depends on the machine.
    """
    return asyncio.run(_run(seed, reviews, part, checks_costs))


async def _run(seed: int, reviews: int, part: int, checks_costs: bool) -> Report:
    calls = Calls(Random(f"{seed}/{part}"), origins(seed, ORIGINS))
    report = Report()
    validated_in = places()
    early_bytes = 0
    async with standing(validated_in) as stand:
        # What large bodies leave behind as holes in the heap comes before all others: no growth.
        for call in largest(Random(seed)):
            await _ask(stand, call, report)
        gc.collect()
        caches = _function_caches()
        gc.freeze()
        for number, call in enumerate(islice(calls, reviews)):
            place = number // ROUND % len(validated_in)
            stand.validate_in(place)
            for complaint in await _complaints_about(stand, call, number, report, checks_costs):
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
                early_bytes = _bytes_in_use(stand, caches)
        report.growth_mib = (_bytes_in_use(stand, caches) - early_bytes) / 2**20
    gc.unfreeze()
    return report


async def _complaints_about(
    stand: Stand, call: Call, number: int, report: Report, checks_costs: bool
) -> list[str]:
    """Ask, count, and return the faults."""
    answer = await _ask(stand, call, report)
    complaints_ = list(complaints(call, answer, stand.log))
    report.reviews += 1
    report.kinds[call.kind.partition(":")[0]] += 1
    report.statuses[str(answer.status) if answer else "none"] += 1
    if answer is not None:
        if answer.status == 200 and not complaints_:
            complaints_ += await _again(stand, call, answer, report)
        cost = await _least_cost(stand, call, answer)
        for name, costliest in report.costliest.items():
            own = Costliest(seconds=getattr(cost, name), kind=call.kind)
            report.costliest[name] = max(costliest, own)
        if checks_costs and cost.exceeds(limits_of(call)):
            complaints_ += cost_complaints(call, cost, slow_by())
    if number % THROUGH_TLS == 0 and answer is not None:
        report.through_tls += 1
        other = await stand.ask_over_tls(call)
        complaints_ += [f"through TLS: {fault}" for fault in complaints(call, other, stand.log)]
        # Where HTTP is odd, it may depend on the pace whether all of a body came in time.
        if call.is_http and (other is None or other.body != answer.body):
            complaints_.append(f"through TLS another answer: {other.status if other else None}")
    return complaints_


async def _least_cost(stand: Stand, call: Call, answer: Answer) -> Cost:
    """Return the cost of a call at any time: a disturbance comes once."""
    cost = answer.cost
    for _ in range(ATTEMPTS - 1):
        if not call.is_http or not cost.exceeds(limits_of(call)):
            break
        again = await stand.ask(call)
        if again is not None:
            cost = cost.least(again.cost)
    return cost


async def _again(stand: Stand, call: Call, answer: Answer, report: Report) -> list[str]:
    """Ask about the pod as it was patched; it must be accepted as it is."""
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
    """Return True if a container or a claim has no name, or another's; the API server rejects such a pod."""
    spec = pod["spec"]
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    return any(
        len(set(names)) < len(names) or "" in names
        for entries in (containers, spec.get("resourceClaims") or ())
        for names in [[entry.get("name") or "" for entry in entries]]
    )


# --- memory ---------------------------------------------------------------------------------------


def _function_caches() -> "Sequence[_lru_cache_wrapper[Any]]":
    """Return the caches of functions."""
    return [object_ for object_ in gc.get_objects() if isinstance(object_, _lru_cache_wrapper)]


class _Mallinfo(ctypes.Structure):
    """The memory that glibc's allocator has given away; `struct mallinfo2`."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def _bytes_in_use(stand: Stand, caches: "Iterable[_lru_cache_wrapper[Any]]") -> int:
    """Return the bytes that are in use with empty caches, small blocks counted as the largest.

    Not the memory of the process: a single block keeps a page, or an arena of a mebibyte, and holes that
    large bodies left behind are used again.
    """
    stand.forget(places())
    for cache in caches:
        cache.cache_clear()
    gc.collect()
    mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)
    large_bytes = 0
    if mallinfo is not None:
        mallinfo.restype = _Mallinfo
        state = mallinfo()
        large_bytes = state.uordblks + state.hblkhd
    return sys.getallocatedblocks() * MAX_BLOCK_BYTES + large_bytes


async def _ask(stand: Stand, call: Call, report: Report) -> Answer | None:
    """Return the answer to a call, and report the memory that a large one adds.

    What this process takes to make reviews and to look at answers does not count.
    """
    if len(call.bytes) < LARGE_BYTES:
        return await _answer(stand, call)
    _forget_peak()
    before_mib = _status_mib("VmRSS")
    answer = await _answer(stand, call)
    added = Largest(mib=_status_mib("VmHWM") - before_mib, kind=call.kind)
    report.added = max(report.added, added)
    return answer


async def _answer(stand: Stand, call: Call) -> Answer | None:
    """Return the answer to a call, made again as by a client if a slow machine has postponed it."""
    answer = None
    for _ in range(ATTEMPTS):
        answer = await stand.ask(call)
        if answer is None or b'"TooManyRequests"' not in answer.body:
            break
    return answer


def _forget_peak() -> None:
    """Have the kernel begin a new peak of our memory, at its present size."""
    Path("/proc/self/clear_refs").write_text("5")


def _status_mib(name: str) -> float:
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[name].split()[0]) / 1024
