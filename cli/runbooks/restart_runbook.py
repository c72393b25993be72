"""The commands of a runbook that create pods again, and those that wait for them. Pure."""

from collections.abc import Iterator
from typing import Final

from cli.runbooks.opt_in_runbook import ROLLED_OUT, asked_lines, restart_comment, tolerant
from cli.runbooks.shell import command, quoted
from findings.text import reference_text
from migration.plan.model.plan import Plan, PlannedWorkload, Wave

_LEFT: Final = "# Pods that a drain has made come again have device keys already: their quota may have no room for one more."
_IDLE: Final = "# None of their pods ran when the plan was made, so a rejection, as of a request that no node can serve, stops nothing."


def restart_lines(wave: Wave, *, with_claims: bool) -> Iterator[str]:
    """Yield the commands that create pods again, without those of changed templates.

    Args:
        wave: A wave.
        with_claims: The pods to delete, where no controller replaces them, have claims; otherwise they have none.
    """
    rolled_out = [
        workload
        for workload in wave.workloads
        if workload.is_restarted and not (workload.labelled or workload.on_delete)
    ]
    yield from (restart_comment(workload) for workload in rolled_out if workload.losses)
    asking = [workload for workload in rolled_out if workload.asks]
    silent = [workload for workload in rolled_out if not workload.asks]
    if silent:
        yield "# Only workloads whose pods change are restarted; Jobs run out, CronJobs change with their next run."
    alone = [workload for workload in silent if _is_alone(workload, with_claims=with_claims)]
    if alone:
        yield _LEFT if with_claims else _IDLE
    yield from (_restart_line(workload, with_claims=with_claims) for workload in alone)
    targets: dict[str, list[str]] = {}
    for workload in silent:
        if not _is_alone(workload, with_claims=with_claims):
            kind, namespace, name = workload.object.split("/", 2)
            targets.setdefault(namespace, []).append(f"{ROLLED_OUT[kind]}/{name}")
    for namespace, names in targets.items():
        words = ("kubectl", "rollout", "restart", f"--namespace={namespace}")
        yield " \\\n  ".join((command(*words), *map(quoted, names)))
    for workload in asking:
        yield from asked_lines(workload, _restart_line(workload, with_claims=with_claims))
    yield from _deleted_lines(wave, "claims" if with_claims else "keys")


def _is_alone(workload: PlannedWorkload, *, with_claims: bool) -> bool:
    """Return True if a workload is restarted by a command of its own, under a condition."""
    return bool(workload.selector) if with_claims else workload.has_waited


def _restart_line(workload: PlannedWorkload, *, with_claims: bool) -> str:
    """Return the command for the restart of a workload; the way back needs a pod with claims."""
    kind, namespace, name = workload.object.split("/", 2)
    target = f"{ROLLED_OUT[kind]}/{name}"
    if with_claims and workload.selector:
        return command("restart_with_claims", target, namespace, workload.selector)
    restart = command("kubectl", "rollout", "restart", f"--namespace={namespace}", target)
    return restart if with_claims else tolerant(workload, restart)


def _deleted_lines(wave: Wave, devices: str) -> Iterator[str]:
    """Yield the commands that delete pods that no controller replaces when their template changes."""
    deleted = [workload for workload in wave.workloads if workload.on_delete]
    if deleted:
        yield "# No controller replaces these pods; they are deleted one after another, as they are ready again."
    for workload in deleted:
        if workload.losses:
            yield restart_comment(workload)
        kind, namespace, name = workload.object.split("/", 2)
        if not workload.selector:
            text = (
                f"by hand: delete the pods of {reference_text(workload.object)}, one after another"
            )
            yield f"echo {quoted(text)}"
            continue
        words = (f"{kind.lower()}/{name}", namespace, workload.selector)
        yield from asked_lines(
            workload, command("recreate_pods", *words, devices, _least(workload))
        )


def _least(workload: PlannedWorkload) -> str:
    """Return the number of pods that a script waits for at most, since they ran when the plan was made; empty for all."""
    return "" if workload.ready_pods is None else str(workload.ready_pods)


def returned_lines(wave: Wave) -> Iterator[str]:
    """Yield the command that waits for the pods of all rollouts; those that are deleted are waited for then."""
    rolled_out = [
        workload for workload in wave.workloads if workload.is_restarted and not workload.on_delete
    ]
    if rolled_out:
        yield "# Stops if pods that ran when the plan was made are not back after half an hour, and names them."
        words = [command("wait_for_rollouts")]
        for workload in rolled_out:
            kind, namespace, name = workload.object.split("/", 2)
            target = f"{ROLLED_OUT[kind]}/{name}"
            words.append(command(target, namespace, workload.selector, _least(workload)))
        yield " \\\n  ".join(words)


def recreation_lines(plan: Plan, wave: Wave) -> Iterator[str]:
    """Yield commands that name the pods that no command creates again."""
    servers = {
        work.pod
        for entry in plan.waves
        for work in (*entry.work, *entry.deleted_by_hand)
        if work.hub_server
    }
    for workload in wave.workloads:
        if workload.is_created_by_hand:
            name = reference_text(workload.object)
            text = (
                f"have its user stop {name}, and start it again in the hub"
                if workload.object in servers
                else f"delete {name}, and apply its manifest again"
            )
            yield f"echo {quoted(f'by hand: {text}')}"
