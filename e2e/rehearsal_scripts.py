"""The scripts of a plan as a rehearsal runs them: one after the other, none for longer than it makes a difference."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from e2e.access import Access
from e2e.rehearsal_load import missing_pods, pod_versions
from e2e.rehearsal_repository import Repository
from migration.rehearsal.model import ScriptRun

MOST_S: Final = 45 * 60
"""The longest time for a script."""
STILL_S: Final = 5 * 60
"""The longest time for a script in which no pod changes: nothing on simulated nodes takes that long."""
TIMED_OUT: Final = 124
_POLL_S: Final = 0.2
_PODS_POLL_S: Final = 5.0
_OUTPUT_LINES: Final = 30


def say(words: str) -> None:
    """Tell a person the progress."""
    print(f"rehearse: {words}", file=sys.stderr, flush=True)


class ScriptRunner:
    """Runs scripts as a person would without a terminal; their children end with us.

    Attributes:
        runs: The scripts that were run, in order.
    """

    def __init__(
        self,
        plan: Path,
        environment: Mapping[str, str],
        cluster: Access,
        repository: Repository,
        *,
        still_s: float = STILL_S,
    ) -> None:
        """Take the plan and its cluster.

        Args:
            plan: The folder of the plan.
            environment: All environment variables of the scripts.
            cluster: The rehearsed cluster.
            repository: The repository that gets the changes that scripts ask for.
            still_s: The longest time in seconds for a script in which no pod changes.
        """
        self.runs: list[ScriptRun] = []
        self._plan = plan
        self._environment = environment
        self._cluster = cluster
        self._repository = repository
        self._still_s = still_s

    def run(self, script: str, arguments: tuple[str, ...] = ()) -> bool:
        """Run a script, and again after a stop for a commit that is done by then; return True if it succeeds."""
        while True:
            commits = len(self._repository.done)
            run = self._run(script, arguments)
            self.runs.append(run)
            if not run.status or len(self._repository.done) == commits:
                return not run.status

    def _run(self, script: str, arguments: tuple[str, ...]) -> ScriptRun:
        path = self._plan / script
        log = path.with_suffix(".log")
        began = time.monotonic()
        with (
            log.open("w") as output,
            subprocess.Popen(
                ["bash", path, *arguments],
                cwd=path.parent,
                env=dict(self._environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            ) as process,
        ):
            try:
                reason = self._wait(process)
            except BaseException:
                _kill_group(process)
                raise
            if reason:
                _kill_group(process)
        self._repository.commit()
        status = TIMED_OUT if reason else process.returncode
        seconds = round(time.monotonic() - began, 1)
        say(f"{script}: {seconds:.0f} s, exit status {status}{f', {reason}' if reason else ''}")
        return ScriptRun(
            script=script,
            seconds=seconds,
            status=status,
            output="\n".join(self._last_lines(log, reason)) if status else "",
        )

    def _wait(self, process: subprocess.Popen[bytes]) -> str:
        """Wait for the end of a script; return the reason to end it earlier, empty without one."""
        began = changed = looked = time.monotonic()
        before = pod_versions(self._cluster)
        while process.poll() is None:
            self._repository.commit()
            now = time.monotonic()
            if now - looked > _PODS_POLL_S:
                looked = now
                versions = pod_versions(self._cluster)
                if versions != before:
                    before, changed = versions, now
            if now - changed > self._still_s:
                return f"ended by the rehearsal, as no pod has changed for {self._still_s / 60:.0f} minutes"
            if now - began > MOST_S:
                return f"ended by the rehearsal after {MOST_S // 60} minutes"
            time.sleep(_POLL_S)
        return ""

    def _last_lines(self, log: Path, reason: str) -> Iterator[str]:
        yield from log.read_text(errors="replace").splitlines()[-_OUTPUT_LINES:]
        if reason:
            yield reason
        yield from missing_pods(self._cluster)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """End a program that leads a process group, with all that it has started there."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
