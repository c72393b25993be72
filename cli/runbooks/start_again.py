"""The texts on the workloads of other projects that a person starts again after the last wave."""

from collections.abc import Iterator

from findings.text import join_names, reference_text
from migration.plan.model.plan import Plan


def start_again_texts(plan: Plan) -> Iterator[str]:
    """Yield a text for the workloads of each state, with the names of the first."""
    names_of: dict[str, list[str]] = {}
    for workload in plan.stopped_workloads:
        names_of.setdefault(workload.text, []).append(reference_text(workload.object))
    yield from (f"{join_names(names)}: {text}" for text, names in names_of.items())


def start_again_lines(plan: Plan) -> Iterator[str]:
    """Yield the part of README.md on the workloads, all of them; nothing without any."""
    if not plan.stopped_workloads:
        return
    yield ""
    yield "Workloads of other projects without pods that request devices. No script starts one: whoever has stopped it starts it again"
    yield f"after the last wave, and verify.sh of wave {plan.waves[-1].wave} names those that still have no pods. For one that its controller starts"
    yield "by itself before that, the notes say between which waves there are no devices:"
    yield ""
    for workload in plan.stopped_workloads:
        yield f"- {reference_text(workload.object)}: {workload.text}"
