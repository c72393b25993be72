"""Honest and hostile load with faults for as long as is wished: `make soak MINUTES=n`.

Two replicas of the webhook stand behind a balancer. Honest clients create pods with device keys, try
again for a while as controllers do, and wait until the pods run. Hostile ones send what costs most, the
attackers of `make attack` flood by turns, and one fault follows the other. Figures are JSON lines; the last one is the result. The exit status is 1
if an honest pod was lost or admitted with its keys, or if a process grew.
"""

import argparse
import http.client
import itertools
import json
import signal
import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from e2e.access import Object
from e2e.attackers.flood import ATTACKERS, Flood
from e2e.attackers.target import target_in
from e2e.cluster import Cluster
from e2e.drawbridge import CERTIFICATES, CONTROLLER, Drawbridge, install_drawbridge
from e2e.fleet import examples_fleet
from e2e.inventory import HAMI
from e2e.objects import pod
from e2e.replicas import Replicas
from e2e.soak_record import SoakRecord
from e2e.translated import legacy_keys
from e2e.users import EDITOR, PODS_ONLY, add_user
from kube.names import REQUEST_ANNOTATION, ROTATE_ANNOTATION
from testing.documents import claim

NAMESPACE: Final = "soak"
HOSTILE: Final = "hostile"
"""The namespace of the attackers of `make attack`."""
HONEST: Final = 3
"""Clients, each with one pod at a time."""
HONEST_PAUSE_S: Final = 0.5
HOSTILE_PER_SECOND: Final = 10
ADMITTED_WITHIN_S: Final = 60.0
RUNNING_WITHIN_S: Final = 120.0
"""The patience of a controller and its user, during a fault on a busy machine."""
FAULT_PAUSE_S: Final = 30.0
SAMPLE_PAUSE_S: Final = 10.0
HANG_S: Final = 7.0
"""Longer than the API server waits for a webhook."""
FLOODS: Final = tuple(attacker for attacker in ATTACKERS if attacker.who != "compromised")
FLOOD_PAUSE_S: Final = 45.0
FLOOD_S: Final = 15.0
FLOOD_PER_SECOND: Final = 20.0
"""The rate of the attackers of `make attack`; from time to time one of them does its worst."""
PATTERN: Final = r"(?i)(\\pL|.){0,700}c"
SETTINGS: Final = {
    "certificates": {
        "resyncPeriod": "5s",
        "authorityPublishPeriod": "5s",
        "pathKeyRenewPeriod": "90s",
        "pathKeyGracePeriod": "15s",
    },
    "webhook": {"drain": "1s", "maxDrain": "5s"},
    "controllers": {"templateUnusedPeriod": "30s", "auditPeriod": "30s"},
}


class Figures(SoakRecord):
    """The events so far, with the admission of honest pods."""

    def __init__(self) -> None:
        super().__init__(
            (
                *("admitted", "running", "retried", "lost", "untranslated"),
                *("hostile", "rejected", "floods"),
            )
        )
        self.took_ms: list[float] = []
        self.lost: list[str] = []

    def lose(self, reason: str) -> None:
        """Count a lost pod, and remember the reason."""
        self.count("lost")
        self.lost.append(reason[:300])

    def figures(self) -> Mapping[str, object]:
        """Return the counters with the durations of admissions, without attempts that failed."""
        took = sorted(self.took_ms) or [0.0]
        percentiles = {
            f"p{part}_ms": round(took[min(len(took) - 1, len(took) * part // 100)], 1)
            for part in (50, 99)
        }
        return {**self.counts, **percentiles}


class Soak:
    """The load and the faults."""

    def __init__(self, cluster: Cluster, drawbridge: Drawbridge, replicas: Replicas) -> None:
        self._cluster = cluster
        self._drawbridge = drawbridge
        self._replicas = replicas
        self._numbers = itertools.count()
        self.figures = Figures()

    def run(self, minutes: float) -> bool:
        """Run for some minutes; returns True if all went well."""
        self._prepare()
        loops = [*[self._create_honest] * HONEST, self._attack, self._flood, self._sample]
        with ThreadPoolExecutor(len(loops)) as threads:
            futures = [threads.submit(loop) for loop in loops]
            try:
                self.figures.cause(self._faults(), minutes=minutes, pause_s=FAULT_PAUSE_S)
            finally:
                self.figures.ended.set()
        # Load that ended early proves nothing.
        errors = [repr(error) for future in futures if (error := future.exception())]
        figures, larger = self.figures, self.figures.grown()
        is_good = not (figures.counts["lost"] or figures.counts["untranslated"] or larger or errors)
        figures.print(
            "result", ok=is_good, lost_reasons=figures.lost[:5], grown=larger, errors=errors
        )
        return is_good

    # --- honest ----------------------------------------------------------------------------------

    def _create_honest(self) -> None:
        while not self.figures.ended.wait(HONEST_PAUSE_S):
            name = f"honest-{next(self._numbers)}"
            keys = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 100}
            if self._is_admitted(pod(name, limits=keys)):
                self._await_running(name)
                self._request("DELETE", f"{_path('pods')}/{name}?gracePeriodSeconds=0")

    def _is_admitted(self, document: Object) -> bool:
        """Create a pod, and try again as a controller does."""
        deadline, answer = time.monotonic() + ADMITTED_WITHIN_S, b""
        while time.monotonic() < deadline:
            began = time.monotonic()
            status, answer = self._request("POST", _path("pods"), document)
            if status in {http.client.CREATED, http.client.CONFLICT}:
                self.figures.took_ms.append((time.monotonic() - began) * 1e3)
                self.figures.count("admitted")
                if status == http.client.CREATED and legacy_keys(json.loads(answer)):
                    self.figures.count("untranslated")
                return True
            self.figures.count("retried")
            time.sleep(0.5)
        self.figures.lose(answer.decode(errors="replace"))
        return False

    def _await_running(self, name: str) -> None:
        deadline, answer = time.monotonic() + RUNNING_WITHIN_S, b""
        while time.monotonic() < deadline:
            status, answer = self._request("GET", f"{_path('pods')}/{name}")
            if status == http.client.OK and b'"phase":"Running"' in answer.replace(b" ", b""):
                self.figures.count("running")
                return
            time.sleep(0.5)
        self.figures.lose(f"not running: {answer.decode(errors='replace')[-250:]}")

    # --- hostile ---------------------------------------------------------------------------------

    def _attack(self) -> None:
        attacks: Sequence[Callable[[], int]] = (
            lambda: self._send(_forged()),
            lambda: self._send(_costly_claim(), "resourceclaims"),
            lambda: self._send(_many_containers()),
            self._visit_as_stranger,
        )
        for attack in itertools.cycle(attacks):
            if self.figures.ended.wait(1 / HOSTILE_PER_SECOND):
                return
            self.figures.count("hostile")
            with suppress(OSError):
                if attack() >= http.client.BAD_REQUEST:
                    self.figures.count("rejected")

    def _flood(self) -> None:
        """Have one attacker after the other flood API server and webhook for a while."""
        accounts = {who: (HOSTILE, who) for who in (PODS_ONLY, EDITOR)}
        for number, attacker in enumerate(itertools.cycle(FLOODS)):
            if self.figures.ended.wait(FLOOD_PAUSE_S):
                return
            try:
                target = target_in(
                    self._cluster,
                    self._drawbridge,
                    HOSTILE,
                    accounts,
                    device_class=HAMI,
                    driver=HAMI,
                    mixed_class=HAMI,
                    other_driver=HAMI,
                )
            except (AssertionError, KeyError, OSError, http.client.HTTPException):
                continue  # The API server does not answer, or a configuration is being written.
            with Flood(attacker, target, per_second=FLOOD_PER_SECOND, seed=number) as flood:
                self.figures.ended.wait(FLOOD_S)
            self.figures.count("floods")
            self.figures.print("flood", name=attacker.name, statuses=flood.statuses)

    def _send(self, document: Object, plural: str = "pods") -> int:
        return self._request("POST", f"{_path(plural)}?dryRun=All", document, user="mallory")[0]

    def _visit_as_stranger(self) -> int:
        """Post half a body to the path that everybody knows."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        address = (self._drawbridge.endpoints.host, self._replicas.ports[0])
        with (
            socket.create_connection(address, timeout=2) as plain,
            context.wrap_socket(plain) as connection,
        ):
            connection.sendall(b"POST /mutate HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{")
            answer = connection.recv(64)
            # A replica that ends closes the connection without an answer.
            return int(answer.split()[1]) if answer else 0

    # --- faults ----------------------------------------------------------------------------------

    def _faults(self) -> Sequence[Callable[[], None]]:
        return (
            self._kill_replica,
            self._hang_replica,
            self._drain_replica,
            self._kill_controller,
            self._rotate_authority,
            self._rotate_paths,
            self._kill_certificates,
            self._restart_api_server,
            self._delete_path_secret,
        )

    def _kill_replica(self) -> None:
        port = self._next_replica()
        self._replicas.child(port).signal(signal.SIGKILL)
        self._replicas.child(port).wait(10)
        self._replicas.stop(port)
        self._replicas.start(port)

    def _hang_replica(self) -> None:
        port = self._next_replica()
        self._replicas.child(port).signal(signal.SIGSTOP)
        time.sleep(HANG_S)
        self._replicas.child(port).signal(signal.SIGCONT)

    def _drain_replica(self) -> None:
        port = self._next_replica()
        self._replicas.stop(port)
        self._replicas.start(port)

    def _next_replica(self) -> int:
        return self._replicas.ports[next(self._numbers) % len(self._replicas.ports)]

    def _kill_controller(self) -> None:
        self._kill(CONTROLLER)

    def _kill_certificates(self) -> None:
        self._kill(CERTIFICATES)

    def _kill(self, name: str) -> None:
        self._cluster.children[name].signal(signal.SIGKILL)
        self._cluster.children[name].wait(10)
        self._drawbridge.stop(name)
        self._drawbridge.start(name)

    def _restart_api_server(self) -> None:
        self._cluster.restart("kube-apiserver")

    def _rotate_authority(self) -> None:
        self._rotate("drawbridge-ca")

    def _rotate_paths(self) -> None:
        self._rotate("drawbridge-webhook-path")

    def _rotate(self, name: str) -> None:
        secret = ("secret", name, "-n", self._drawbridge.namespace)
        self._cluster.kubectl("annotate", "--overwrite", *secret, f"{ROTATE_ANNOTATION}=now")

    def _delete_path_secret(self) -> None:
        namespace = ("-n", self._drawbridge.namespace)
        self._cluster.kubectl("delete", *namespace, "secret", "drawbridge-webhook-path")

    # --- inside ----------------------------------------------------------------------------------

    def _prepare(self) -> None:
        classes, nodes, slices = examples_fleet()
        self._cluster.apply(classes)
        self._cluster.add_nodes(nodes, lambda node: slices.get(node, ()))
        for namespace in (NAMESPACE, HOSTILE):
            self._cluster.kubectl("create", "namespace", namespace)
        binding = ("mallory", "--clusterrole=edit", "--user=mallory", "-n", NAMESPACE)
        self._cluster.kubectl("create", "rolebinding", *binding)
        for user in (PODS_ONLY, EDITOR):
            add_user(self._cluster, HOSTILE, user)
        # What audit and observer look at as long as it is stored.
        stored = {**_costly_claim(), "metadata": {"name": "stored", "namespace": NAMESPACE}}
        self._cluster.apply(stored)

    def _request(
        self, method: str, path: str, body: object = None, user: str = ""
    ) -> tuple[int, bytes]:
        """Ask the API server; 0 and the reason if it does not answer."""
        try:
            return self._cluster.request(method, path, body, user=user)
        except (OSError, http.client.HTTPException) as error:
            return 0, str(error).encode()

    def _sample(self) -> None:
        while not self.figures.ended.wait(SAMPLE_PAUSE_S):
            children = {
                child.name: child
                for child in tuple(self._cluster.children.values())
                if child.name.startswith("drawbridge-") and child.record is not None
            }
            self.figures.print("sample", memory_mib=self.figures.sample(children))


def _path(plural: str) -> str:
    prefix = "/api/v1" if plural == "pods" else "/apis/resource.k8s.io/v1"
    return f"{prefix}/namespaces/{NAMESPACE}/{plural}"


def _forged() -> Object:
    """Return a pod with a large record that the webhook never wrote."""
    document = pod("forged", limits={"nvidia.com/gpu": 1})
    document["metadata"]["annotations"] = {REQUEST_ANNOTATION: '{"v":1,"x":"' + "y" * 29_000 + '"}'}
    return document


def _costly_claim() -> Object:
    expression = f'device.attributes["{HAMI}"].uuid.matches("{PATTERN}")'
    exactly = {"deviceClassName": HAMI, "selectors": [{"cel": {"expression": expression}}]}
    return claim({"name": "gpu", "exactly": exactly}, name="costly")


def _many_containers() -> Object:
    document = pod("many", limits={"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1})
    (container,) = document["spec"]["containers"]
    document["spec"]["containers"] = [{**container, "name": f"c{n}"} for n in range(200)]
    return document


@contextmanager
def _installed() -> Iterator[Soak]:
    with TemporaryDirectory(prefix="drawbridge-soak-") as folder, ExitStack() as undo:
        cluster = undo.enter_context(Cluster(Path(folder) / "cluster"))
        drawbridge = install_drawbridge(cluster, settings=SETTINGS)
        replicas = undo.enter_context(Replicas(cluster, drawbridge, {}).running())
        yield Soak(cluster, drawbridge, replicas)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    options = parser.parse_args(arguments)
    with _installed() as soak:
        return 0 if soak.run(options.minutes) else 1


if __name__ == "__main__":
    sys.exit(main())
