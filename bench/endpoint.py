"""The mutate endpoint against a no-op aiohttp server on the same loop."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import process_time

import msgspec

from admission.review import encode_answer
from bench import reviews
from bench.load import Job, Measured, alternately, measure_load, median_of
from bench.report import Result, against, below, informative
from bench.servers import running
from testing.signing import SIGNING
from translation.cluster.snapshot import TranslationOptions
from webhook.mutate import PodReview, answer_pod_review, decode_pod_review

WORKLOADS = 50
"""Kinds of pods that come again and again, as the replicas of workloads do."""
DIFFERENT = 5000
"""Pods of which no two are alike, more than the webhook remembers."""
SECONDS = 2.0
MANY = 16
ATTACKS_PER_SECOND = 10


def measure() -> Iterator[Result]:
    """Yield the results; ours and the anchor alternate, the median of the rounds counts."""
    translating, quiet = reviews.shares(WORKLOADS), reviews.untouched(WORKLOADS)
    different = reviews.shares(DIFFERENT)
    with tempfile.TemporaryDirectory() as folder, running(Path(folder) / "ca.pem") as ports:

        def load(server: str, bodies: Sequence[bytes], connections: int) -> Measured:
            return measure_load(
                Job(
                    port=ports[server],
                    path="/mutate",
                    bodies=bodies,
                    connections=connections,
                    seconds=SECONDS,
                    authority=str(Path(folder) / "ca.pem"),
                )
            )

        ours, anchor = alternately(
            lambda: load("ours", translating, MANY), lambda: load("anchor", translating, MANY)
        )
        yield against(
            f"reviews/s, translating, pods of {WORKLOADS} workloads, {MANY} connections",
            median_of(ours, "rate"),
            median_of(anchor, "rate"),
            at_least=0.3,
        )
        fresh, fresh_anchor = alternately(
            lambda: load("ours", different, MANY), lambda: load("anchor", different, MANY)
        )
        yield informative(
            f"reviews/s, translating, no two pods alike, {MANY} connections",
            median_of(fresh, "rate"),
            median_of(fresh_anchor, "rate"),
        )
        single, one_anchor = alternately(
            lambda: load("ours", translating, 1), lambda: load("anchor", translating, 1)
        )
        yield below("p99 in ms, translating, 1 connection", median_of(single, "p99"), 1.0)
        yield informative(
            "p50 in ms, translating, 1 connection, against a no-op server",
            median_of(single, "p50"),
            median_of(one_anchor, "p50"),
        )
        under_attack, quiet_rounds = alternately(
            lambda: _under_attack(ports["ours"], folder, lambda: load("ours", translating, 1)),
            lambda: load("ours", translating, 1),
        )
        yield informative(
            f"p99 in ms, honest, under {ATTACKS_PER_SECOND} hostile reviews/s, against none",
            median_of(under_attack, "p99"),
            median_of(quiet_rounds, "p99"),
        )
        still, still_anchor = alternately(
            lambda: load("ours", quiet, MANY), lambda: load("anchor", quiet, MANY)
        )
        yield informative(
            f"reviews/s, nothing to translate, {MANY} connections, against a no-op server",
            median_of(still, "rate"),
            median_of(still_anchor, "rate"),
        )
    # Of so few kinds one round is over in 2 ms, in which any pause of the machine shows.
    many_quiet = list(quiet) * 20
    yield below("CPU in us of a review that needs no translation", _cpu_us(many_quiet), 100.0)
    yield below("CPU in us of a review that is translated anew", _cpu_us(different[:500]), 250.0)


def _under_attack(port: int, folder: str, honest: Callable[[], Measured]) -> Measured:
    """Return the service that honest clients get while one user sends the most costly reviews."""
    attack = Job(
        port=port,
        path="/mutate",
        bodies=reviews.hostile(),
        connections=1,
        seconds=2 * SECONDS,
        authority=str(Path(folder) / "ca.pem"),
        per_second=ATTACKS_PER_SECOND,
        statuses=(200, 503),
    )
    with subprocess.Popen(
        [sys.executable, "-m", "bench.load"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as attacker:
        assert attacker.stdin is not None
        attacker.stdin.write(msgspec.msgpack.encode(attack))
        attacker.stdin.close()
        time.sleep(SECONDS / 4)  # It has to start.
        return honest()


def _cpu_us(bodies: Sequence[bytes]) -> float:
    """Return the CPU time of a review between body and answer, without HTTP and TLS."""
    snapshot, options = reviews.snapshot_of_reviews(), TranslationOptions()

    def answer(body: bytes) -> None:
        review = decode_pod_review(body)
        assert isinstance(review, PodReview)
        encode_answer(review.request, answer_pod_review(review, snapshot, options, SIGNING))

    for body in bodies:
        answer(body)
    began = process_time()
    for body in bodies:
        answer(body)
    return (process_time() - began) / len(bodies) * 1e6
