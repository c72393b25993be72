"""Texts on work: the losses of workloads and pods, and the workloads to start again after the last wave. Pure."""

from collections.abc import Iterator

from findings.text import join_names, reference_text
from migration.plan.facts.work import describe_work
from migration.plan.model.plan import Plan, Wave


def losing_by_claims(plan: Plan) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """Yield the workloads with losses by claims: the wave, the name as `Kind/namespace/name`, and the losses.

    Those of other projects without pods are with the wave that opts in their namespace, or with the last one where waves opt in
    a part of it.
    """
    wave_of = {
        entry.namespace: len(plan.waves) for wave in plan.waves for entry in wave.partial_namespaces
    }
    wave_of.update({name: wave.wave for wave in plan.waves for name in wave.namespaces})
    for wave in plan.waves:
        for workload in wave.workloads:
            if workload.claim_losses:
                yield wave.wave, workload.object, tuple(workload.claim_losses)
        for stopped in plan.stopped_workloads:
            if stopped.claim_losses and wave_of.get(stopped.object.split("/")[1]) == wave.wave:
                yield wave.wave, stopped.object, stopped.claim_losses


def loss_lines(plan: Plan) -> Iterator[str]:
    """Yield the workloads and the pods that lose something, wave by wave, all of them."""
    waves_of = [(wave.wave, workload) for wave in plan.waves for workload in wave.workloads]
    lossy: dict[tuple[int, tuple[str, ...]], list[str]] = {}
    for number, reference, losses in losing_by_claims(plan):
        lossy.setdefault((number, losses), []).append(reference_text(reference))
    losing = [entry for entry in waves_of if entry[1].losses]
    if lossy:
        yield ""
        yield "Workloads whose pods leave their scheduler, or whose claims lack something that these request, all of them:"
        yield ""
    for (number, losses), names in lossy.items():
        yield f"- from wave {number} on: {', '.join(names)}: {'; '.join(losses)}"
    if losing:
        yield ""
        yield "Workloads that a restart takes something from, as far as their volumes and annotations tell. What containers keep in"
        yield "memory or outside of volumes is lost by each restart and eviction: ask the users of notebooks first."
        yield ""
    for number, workload in losing:
        verb = "restarted if a person says so" if workload.asks else "restarted"
        text = f"{reference_text(workload.object)}: {'; '.join(workload.losses)}"
        yield f"- wave {number}, {verb}: {text}"
    if title := _pods_title(plan):
        yield ""
        yield title
        yield ""
    for wave in plan.waves:
        yield from _pod_lines(wave)


def _pods_title(plan: Plan) -> str:
    if any(wave.deleted_by_hand for wave in plan.waves):
        return "Pods that an eviction takes something from, and those that a person deletes since nothing creates them again, all of them:"
    if any(wave.work for wave in plan.waves):
        return "Pods that an eviction takes something from, all of them:"
    return ""


def _pod_lines(wave: Wave) -> Iterator[str]:
    """Yield the pods that a wave evicts, waits for or asks about, and then those that a person deletes."""
    deleted = {work.pod for work in wave.deleted_by_hand}
    for work in wave.work:
        if work.pod not in deleted:
            verb = "waited for" if work.waits else "evicted"
            verb = "asked about" if work.never_ends else verb
            yield f"- wave {wave.wave}, {verb}: {reference_text(work.pod)} {describe_work(work)}"
    for work in wave.deleted_by_hand:
        verb = "stopped by its user" if work.hub_server else "deleted by hand"
        yield f"- wave {wave.wave}, {verb}: {reference_text(work.pod)} {describe_work(work)}"


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
    yield "by itself before that, the notes say between which waves there are no devices. From the wave of its namespace on its next"
    yield "pods get claims, so it may be started earlier, too, if you leave as many free devices as later waves need for what they evict:"
    yield ""
    for workload in plan.stopped_workloads:
        yield f"- {reference_text(workload.object)}: {workload.text}"
