"""The text of `drawbridge replay`."""

from collections import Counter
from collections.abc import Iterator, Sequence

from allocator.replay.agreement import RECORDED, Agreement
from allocator.replay.demand import Demand
from allocator.replay.device_use import CapacityUse
from allocator.replay.results import StrategyResult, WaitingSeconds
from allocator.replay.workload import Order
from cli.output.layout import format_table
from cli.verbs.replay.answer import first_capacity
from findings.text import count_text, printable
from sidecar.replay.decisions import DecidedAgain

NOT_MODELLED = (
    "Not modelled: host ports, volumes, affinity between pods, preferred node affinity, topology spread,\n"
    "preemption, autoscaling."
)

MAX_SHAPES = 5
"""Shapes of failed pods that text and page have."""

_HELD = ("PODS", "PLACED LATER", "WAIT P50", "P99")


def format_results(
    results: Sequence[StrategyResult],
    order: Order,
    pods: int,
    demand: Demand | None = None,
    *,
    agreement: Agreement | None = None,
    decided: DecidedAgain | None = None,
) -> str:
    """Return a table of the results, and the reasons of the pods that failed.

    Args:
        results: The results.
        order: The order in which pods arrived.
        pods: Number of pods.
        demand: The devices that they request; None where they leave.
        agreement: The recorded placements, for pods of a recording; None for others.
        decided: The recorded decisions of the bridge, made again; None if none were recorded.
    """
    capacity = next(filter(None, map(first_capacity, results)), None)
    recorded_capacity = None if agreement is None else first_capacity(agreement.outcome)
    differs = recorded_capacity is not None and _capacity_name(recorded_capacity) != _capacity_name(
        capacity
    )
    if agreement is not None:
        results = (agreement.outcome, *results)
    capacity = capacity or recorded_capacity
    waits = order is Order.ARRIVAL
    shares = ["MEAN", "PEAK", "AT END"] if waits else ["ALLOCATED"]
    head = ["STRATEGY", "SEED", "PLACED", "FAILED", *shares, "IN USE", "IDLE", "2ND TRY"]
    head += ["WAIT P50", "P99"] * waits
    has_gain = any(result.gain for result in results)
    head += ["MORE PODS", "MORE IN USE"] * has_gain
    subtitle = f"{count_text(pods, 'pod')} in the order {order.value}"
    if capacity is not None:
        others = f", {RECORDED} of {_capacity_name(recorded_capacity)}" if differs else ""
        share = f"the share of {_capacity_name(capacity)}"
        subtitle += (
            f". {describe_columns(results, share)}{others}"
            if waits
            else f". ALLOCATED: {share} at the end{others}"
        )
    rows = [
        (*_row(result, waits=waits), *(_gain(result) if has_gain else ())) for result in results
    ]
    if demand is not None:
        subtitle += f"\n{format_demand(demand)}"
    parts = [subtitle, format_table(head, rows)]
    parts += _column_notes(results, waits=waits, has_gain=has_gain)
    if agreement is not None:
        parts.append("\n".join(format_agreement(agreement)))
    if decided is not None:
        parts.append("\n".join(format_decisions(decided)))
    return "\n\n".join((*parts, *_failures(results), NOT_MODELLED))


def _failures(results: Sequence[StrategyResult]) -> Iterator[str]:
    """Yield the tables of pods that failed, and of devices that are idle."""
    reasons = "\n".join(_reasons(results))
    if reasons:
        yield f"Pods that failed, by reason\n{reasons}"
    names, shape_rows = tabulate_shapes(results)
    if shape_rows:
        table = format_table([*names, "OF", "DEVICES OF EACH"], shape_rows)
        yield f"Pods that failed, by what they request\n{table}"
    held_rows = [row for result in results for row in _held_rows(result)]
    if held_rows:
        table = format_table(("STRATEGY", "QUOTA", "NAMESPACE", *_HELD), held_rows)
        yield f"Pods that a quota held back\n{table}"
    idle = "\n".join(_idle(results))
    if idle:
        yield f"Idle devices, by what keeps pods that failed from them\n{idle}"


def _column_notes(
    results: Sequence[StrategyResult], *, waits: bool, has_gain: bool
) -> Iterator[str]:
    """Yield the meaning of columns that need words."""
    if waits and any(result.pods.failed for result in results):
        yield "WAIT: of all pods; never: such a pod got no node"
    if has_gain:
        mean = " (in the mean over time)" if waits else ""
        yield (
            "MORE PODS, MORE IN USE: what the added nodes bring, beside the same pods without "
            f"them{mean}"
        )


def describe_columns(results: Sequence[StrategyResult], share: str) -> str:
    """Return the meaning of the columns of a replay over time."""
    times = [result.over_time for result in results if result.over_time]
    begin = min((time.from_second for time in times), default=0.0)
    until = max((time.until_second for time in times), default=0.0)
    return (
        f"MEAN, PEAK: {share}\nfrom second {format_number(begin)} to {format_number(until)}. "
        "AT END, IN USE, IDLE: when all is over"
    )


def _capacity_name(capacity: CapacityUse | None) -> str:
    return "" if capacity is None else printable(f"{capacity.name} of {capacity.driver}")


def format_demand(demand: Demand) -> str:
    """Return a line with the devices that the pods request, and the share of each capacity."""
    devices = format_number(demand.requested_devices)
    total = count_text(demand.total_devices, "device")
    parts = [
        f"{printable(f'{capacity.name} of {capacity.driver}')} {format_percent(capacity.percent)}"
        for capacity in demand.capacities
    ]
    of_capacities = f": {', '.join(parts)}" if parts else ""
    return f"The pods request {devices} of {total}, {format_percent(demand.percent)}{of_capacities}"


def format_number(number: float) -> str:
    """Return a number with at most two places, and without those that are 0.

    >>> format_number(520.0), format_number(7.125)
    ('520', '7.12')
    """
    return f"{number:.2f}".rstrip("0").rstrip(".")


def format_more(number: float) -> str:
    """Return a number with its sign.

    >>> format_more(2), format_more(-0.5), format_more(0.0)
    ('+2', '-0.5', '+0')
    """
    return f"{'-' if number < 0 else '+'}{format_number(abs(number))}"


def format_agreement(agreement: Agreement) -> Iterator[str]:
    """Yield lines with the frequency of recorded nodes among the best by the scores of `stock`."""
    pods = count_text(agreement.bindings, "pod")
    yield (
        f"Recorded beside stock: {format_percent(agreement.percent)} of {pods} that kube-scheduler bound are on "
        f"a node with the best score of that moment ({count_text(agreement.ties, 'tie')})"
    )
    if agreement.otherwise:
        causes = ", ".join(f"{cause} {count}" for cause, count in agreement.otherwise.items())
        yield f"  the others, by cause: {printable(causes)}"
    if agreement.other_schedulers:
        yield f"  not compared: {count_text(agreement.other_schedulers, 'pod')} of other schedulers"


def format_decisions(decided: DecidedAgain) -> Iterator[str]:
    """Yield lines with the frequency of recorded decisions that come out the same."""
    answers = count_text(decided.answers, "answer")
    placements = count_text(decided.placements, "choice")
    yield (
        f"Decisions of the bridge, made again: {decided.same_answers} of {answers} about the nodes of a pod are the "
        f"same, and {decided.same_placements} of {placements} of its devices"
    )
    if decided.otherwise:
        causes = ", ".join(f"{cause} {count}" for cause, count in decided.otherwise.items())
        yield f"  the others, by cause: {printable(causes)}"
    yield from (f"  {printable(example)}" for example in decided.examples)


def format_percent(percent: float) -> str:
    """Return a percentage that is never rounded up to a whole that it has not reached.

    >>> format_percent(87.5), format_percent(99.999), format_percent(100.0)
    ('87.50 %', '99.99 %', '100.00 %')
    """
    return f"{int(percent * 100) / 100:.2f} %"


def _row(result: StrategyResult, *, waits: bool) -> Sequence[object]:
    capacity = first_capacity(result)
    share = "-" if capacity is None else format_percent(capacity.percent)
    return (
        *(
            result.name,
            "-" if result.name == RECORDED else result.seed,
            result.pods.placed,
            result.pods.failed,
            *(format_means(result) if waits else ()),
            share,
        ),
        *(result.devices.in_use, result.devices.whole_idle, result.second_attempts),
        *(format_waits(result.waiting_seconds) if waits else ()),
    )


def format_means(result: StrategyResult) -> tuple[str, str]:
    """Return the mean and the highest share of the first capacity over time."""
    use = result.over_time
    if not use or first_capacity(result) is None:
        return "-", "-"
    return format_percent(use.mean_percent), format_percent(use.peak_percent)


def format_waits(waiting: WaitingSeconds) -> tuple[str, str]:
    """Return the median and the 99th percentile, over all pods if those of all are known.

    >>> from allocator.replay.results import WaitsOfAll
    >>> format_waits(WaitingSeconds(p50=2, p99=9.5, of_all=WaitsOfAll(p50=3, p99=None)))
    ('3 s', 'never')
    """
    if not waiting.of_all:
        return f"{waiting.p50:g} s", f"{waiting.p99:g} s"
    return _wait(waiting.of_all.p50), _wait(waiting.of_all.p99)


def _wait(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:g} s"


def _gain(result: StrategyResult) -> Sequence[str]:
    if not result.gain:
        return "-", "-"
    return f"{result.gain.pods:+}", format_more(result.gain.devices_in_use)


def _label(result: StrategyResult) -> str:
    return RECORDED if result.name == RECORDED else f"{result.name}, seed {result.seed}"


def _reasons(results: Sequence[StrategyResult]) -> Iterator[str]:
    for result in results:
        if result.failed_by:
            counts = ", ".join(f"{reason} {count}" for reason, count in result.failed_by.items())
            yield f"  {_label(result)}: {printable(counts)}"
    # The errors of claims are the same whatever places the pods.
    errors = {text: reason for result in results for reason, text in (result.errors or {}).items()}
    for text, reason in errors.items():
        yield f"  {reason}: {printable(text)}"


def tabulate_shapes(
    results: Sequence[StrategyResult],
) -> tuple[Sequence[str], Sequence[Sequence[int | str]]]:
    """Return the names of strategies, and rows of the pods that failed with each: the most frequent shapes, and the rest.

    A row has a number for each strategy, that of all such pods, and their devices. Of several seeds the first counts.
    """
    firsts = {result.name: result for result in reversed(results)}
    first_results = [firsts[name] for name in dict.fromkeys(result.name for result in results)]
    shapes: dict[str, int] = {}
    failed: Counter[str] = Counter()
    failed_with = []
    for result in first_results:
        own = {shape.devices: shape.failed for shape in result.failed_shapes}
        failed.update(own)
        failed_with.append(own)
        shapes |= {shape.devices: shape.pods for shape in result.failed_shapes}
    rows: list[list[int | str]] = [
        [*(own.get(devices, 0) for own in failed_with), shapes[devices], devices]
        for devices, _ in failed.most_common(MAX_SHAPES)
    ]
    others = [devices for devices, _ in failed.most_common()[MAX_SHAPES:]]
    if others:
        sums = [sum(own.get(devices, 0) for devices in others) for own in failed_with]
        pods = sum(shapes[devices] for devices in others)
        rows.append(
            [*sums, pods, f"{count_text(len(others), 'other kind')} (failedShapes in JSON)"]
        )
    return [result.name for result in first_results], rows


def _held_rows(result: StrategyResult) -> Iterator[Sequence[object]]:
    for entry in result.held_back or ():
        waiting = entry.waiting_seconds
        waits = ("-", "-") if not entry.placed else (f"{waiting.p50:g} s", f"{waiting.p99:g} s")
        yield (
            *(_label(result), printable(entry.quota), printable(entry.namespace)),
            *(entry.pods, entry.placed, *waits),
        )


def _idle(results: Sequence[StrategyResult]) -> Iterator[str]:
    for result in results:
        if result.idle_because:
            counts = ", ".join(f"{reason} {count}" for reason, count in result.idle_because.items())
            yield f"  {_label(result)}: {printable(counts)}"
