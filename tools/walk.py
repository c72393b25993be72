"""The way of a request through the code: `python -m tools.walk [--files WALK]`.

Each walk is made twice in one process, and the second, warm one is counted: the files, functions and
folders of the product in which something was called. Libraries and tests do not count, nor do the
substitutes of a cluster, nor what the loops of an idle process call.
"""

import argparse
import asyncio
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Final, NamedTuple

import msgspec
import yaml
from click.testing import CliRunner
from structlog.testing import capture_logs

from admission.review import encode_answer
from cli.__main__ import main as drawbridge
from testing.builders import translation_snapshot
from testing.fake_api_server import FakeApiServer
from testing.sidecar.scheduler import FakeScheduler, publish, put_claim, put_pod, sidecar_beside
from testing.signing import SIGNING
from testing.webhook_endpoint import review
from translation.cluster.snapshot import TranslationOptions
from webhook.mutate import answer_pod_review, decode_pod_review

ROOT: Final = Path(__file__).parent.parent
EXAMPLES: Final = ROOT / "examples"
OUTSIDE: Final = frozenset({".venv", "bench", "build", "e2e", "testing", "tests", "tools"})
"""Folders at the root whose code is not part of the product."""
CLAIMS: Final = 6
"""The claims that are placed for the walk of one."""
IDLE_S: Final = 0.3
"""Seconds in which each loop of an idle sidecar runs at least once."""


class Function(NamedTuple):
    """A function of the product."""

    path: str
    name: str


class Walk(NamedTuple):
    """The functions that were called on one way."""

    functions: frozenset[Function]

    @property
    def files(self) -> frozenset[str]:
        """The files of the functions, below the root."""
        return frozenset(function.path for function in self.functions)

    @property
    def folders(self) -> frozenset[str]:
        """The folders of the files."""
        return frozenset(path.rpartition("/")[0] for path in self.files)


class Recorder:
    """Records the code that runs in this thread, and in threads that it starts."""

    def __init__(self) -> None:
        self._codes: set[CodeType] | None = None

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Follow calls, and record none of them yet."""
        threading.setprofile(self._take)
        sys.setprofile(self._take)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    @contextmanager
    def recording(self) -> Iterator[set[CodeType]]:
        """Record calls in the set that is yielded."""
        codes: set[CodeType] = set()
        self._codes = codes
        try:
            yield codes
        finally:
            self._codes = None

    def _take(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and self._codes is not None:
            self._codes.add(frame.f_code)


def walk_of(codes: Iterable[CodeType]) -> Walk:
    """Return the walk of code that ran, without comprehensions, since Python 3.12 inlines them."""
    return Walk(
        frozenset(
            Function(path, code.co_qualname)
            for code in codes
            if not code.co_name.startswith("<") and (path := product_path(Path(code.co_filename)))
        )
    )


def product_path(path: Path) -> str:
    """Return the path of a file of the product below the root; empty for other files."""
    if not path.is_relative_to(ROOT):
        return ""
    below = path.relative_to(ROOT)
    return "" if len(below.parts) == 1 or below.parts[0] in OUTSIDE else below.as_posix()


def walk_call(call: Callable[[], None]) -> Walk:
    """Return the walk of a call that ends with everything that it started."""
    recorder = Recorder()
    with recorder.installed():
        call()
        with recorder.recording() as codes:
            call()
    return walk_of(codes)


def admit_pod() -> None:
    """Answer the review of a pod that requests a share of a GPU."""
    document = yaml.load((EXAMPLES / "share.yaml").read_text(), Loader=yaml.CSafeLoader)
    body = msgspec.json.encode(review(document))
    pod_review = decode_pod_review(body)
    answer = answer_pod_review(pod_review, translation_snapshot(), TranslationOptions(), SIGNING)
    if not answer.operations:
        raise ValueError("the pod was not translated")
    encode_answer(pod_review.request, answer)


def run_command(*arguments: str) -> None:
    """Run `drawbridge` in this process."""
    result = CliRunner().invoke(drawbridge, arguments, catch_exceptions=False)
    if not result.stdout:
        raise ValueError(f"{arguments} printed nothing:\n{result.stderr}")


def walk_claim() -> Walk:
    """Return the walk of a claim from the scheduler's PreFilter to its written allocation."""
    recorder = Recorder()
    with tempfile.TemporaryDirectory() as folder, recorder.installed(), capture_logs():
        return asyncio.run(_place_claims(recorder, Path(folder)))


async def _place_claims(recorder: Recorder, folder: Path) -> Walk:
    """Place some claims, one after the other, and return the common walk of all but the first.

    What a loop did by chance beside one of them, on a machine that is busy, does not count.
    """
    async with FakeApiServer() as server:
        publish(server, "node-1", "node-2", per_node=CLAIMS)
        async with sidecar_beside(server, folder) as sidecar:
            scheduler = FakeScheduler(sidecar.socket)
            await scheduler.hello()
            names = [f"pod-{number}" for number in range(CLAIMS)]
            _, *walks = [await _place_claim(server, scheduler, recorder, name) for name in names]
            if not all(sidecar.devices_of(f"gpu-{name}") for name in names):
                raise ValueError("the claims were not allocated")
    return Walk(frozenset.intersection(*(walk.functions for walk in walks)))


async def _place_claim(
    server: FakeApiServer, scheduler: FakeScheduler, recorder: Recorder, name: str
) -> Walk:
    put_claim(server, f"gpu-{name}")
    pod = put_pod(server, name, f"gpu-{name}")
    await asyncio.sleep(IDLE_S)
    with recorder.recording() as idle:
        await asyncio.sleep(IDLE_S)
    with recorder.recording() as codes:
        await scheduler.prefilter(pod)
        scheduler.reserve(pod, "node-2")
        await scheduler.prebind(pod)
    return walk_of(codes - idle)


WALKS: Final[Mapping[str, Callable[[], Walk]]] = {
    "pod": partial(walk_call, admit_pod),
    "claim": walk_claim,
    "check": partial(
        walk_call,
        partial(
            run_command,
            *("check", "-f", str(EXAMPLES / "share.yaml")),
            *("--snapshot", str(EXAMPLES / "cluster" / "cluster.yaml")),
        ),
    ),
    "assess": partial(
        walk_call,
        partial(
            run_command,
            *("assess", "--snapshot", str(EXAMPLES / "migration" / "hami" / "before.yaml")),
        ),
    ),
}
"""Each walk and what makes it, in the order of docs/architecture.md."""


def main() -> None:
    """Print a table of all walks, or the files of one."""
    parser = argparse.ArgumentParser(prog="python -m tools.walk", description=__doc__)
    parser.add_argument("--files", choices=WALKS, help="print the files of one walk instead")
    name = parser.parse_args().files
    if name:
        print(*sorted(WALKS[name]().files), sep="\n")
        return
    print(f"{'walk':<8} {'files':>6} {'functions':>10} {'folders':>8}")
    for name, make_walk in WALKS.items():
        walk = make_walk()
        counts = (len(walk.files), len(walk.functions), len(walk.folders))
        print("{:<8} {:>6} {:>10} {:>8}".format(name, *counts))


if __name__ == "__main__":
    main()
