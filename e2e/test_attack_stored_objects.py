"""Hostile objects that are stored, not under review: every process reads them, and none of them minds.

Slices, classes, claims, templates, policies, quotas, limits, an ownership and settings, each as long, deep,
many or odd as the API server lets anybody with the rights write them.
"""

import http.client
import json
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from admission.webhook_configuration import ROUTING_WEBHOOK
from e2e.access import Access, Object, stream
from e2e.drawbridge import (
    CERTIFICATES,
    CONTROLLER,
    OBSERVER,
    ROOT,
    WEBHOOK,
    Drawbridge,
    command_line,
    install_drawbridge,
)
from e2e.load import Load
from e2e.objects import pod
from e2e.probes import watched_probes
from kube.names import ENFORCEMENT_LABEL
from testing.documents import api_object
from testing.hostile_objects import (
    MANY,
    TERMINAL,
    cluster_objects,
    namespaced_objects,
    ownership,
)

pytestmark = pytest.mark.usefixtures("fleet")

HONEST: Final = pod("honest", limits={"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000})
PROCESSES: Final = (WEBHOOK, CONTROLLER, CERTIFICATES, OBSERVER)
WATCHED_S: Final = 20.0
MAX_LINES_PER_S: Final = 20
MAX_CPU: Final = 0.9
"""The part of a core for any one process, while only stored objects ask for its work."""
WIDE: Final = 40
"""Claims, and as many templates; all together they would take half a gigabyte."""
MAX_GROWN_MIB: Final = 150
"""The growth beside the stored objects: by reviews of these, which are large, and the honest pods."""
STORED: Final = 30
"""The least number of stored objects; the API server refuses some, with the reason in the output."""


@pytest.fixture(scope="module")
def observer(cluster: Access) -> Iterator[Drawbridge]:
    drawbridge_ = install_drawbridge(
        cluster,
        manifests=ROOT / "manifests" / "observer",
        settings={"observer": {"initialDelay": "500ms", "reevaluationPeriod": "2s"}},
    )
    yield drawbridge_
    drawbridge_.uninstall()


@pytest.fixture(scope="module")
def hostile(cluster: Access, drawbridge: Drawbridge, observer: Drawbridge) -> Iterator[str]:
    """A namespace with hostile objects, and some without a namespace."""
    namespace = "hostile-stored"
    labels = {ENFORCEMENT_LABEL: "off"}
    post(cluster, api_object("Namespace", namespace, labels=labels, annotations={"a": TERMINAL}))
    cluster.wait_for("serviceaccounts", "default", namespace)
    stored: list[tuple[str, str]] = []
    try:
        stored.extend(store(cluster, (*cluster_objects(), *namespaced_objects()), namespace))
        assert len(stored) >= STORED
        yield namespace
    finally:
        for _, path in reversed(stored):
            cluster.request("DELETE", path)
        cluster.kubectl("delete", "namespace", namespace, "--wait=false")


def post(cluster: Access, document: Object) -> None:
    """Create an object as JSON: kubectl apply takes no control characters."""
    path = cluster.kind(document["kind"]).path(document["metadata"].get("namespace"))
    status, body = cluster.request("POST", path, document)
    assert status == http.client.CREATED, body


def store(cluster: Access, objects: Iterable[Object], namespace: str) -> Iterator[tuple[str, str]]:
    """Create objects; yields name and path of those that the API server took."""
    for document in objects:
        path = cluster.kind(document["kind"]).path(namespace)
        name = document["metadata"]["name"]
        status, body = cluster.request("POST", path, document)
        if status == http.client.CREATED:
            yield f"{document['kind']}/{name}", f"{path}/{name}"
        else:
            print(f"not stored: {document['kind']}/{name[:40]}: {status} {body[:300]!r}")


def cpu_s(cluster: Access, process: str) -> float:
    """Return the CPU time of a process and its workers so far."""
    record = cluster.children[process].record
    assert record is not None, f"{process} ended"
    fields = Path(f"/proc/{record.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15]) / 100


@contextmanager
def unmoved(cluster: Access, drawbridge: Drawbridge) -> Iterator[None]:
    """Hold that no process ends or begins again, that probes pass, and honest pods are made."""
    pids = {name: cluster.children[name].record for name in PROCESSES}
    with watched_probes(drawbridge, ("/livez", "/readyz")) as problems:
        yield
    assert problems == []
    assert {name: cluster.children[name].record for name in PROCESSES} == pids


def assert_clean(log: str) -> None:
    """Assert that a log has nothing that a terminal obeys, and no bug of ours."""
    lines = log.splitlines()
    assert all(line.isprintable() for line in log.split("\n"))
    bugs = [line for line in lines if '"exception"' in line]
    assert bugs == []
    assert max(map(len, lines), default=0) < 8192


@pytest.mark.long
def test_honest_pods_are_made_beside_what_is_stored(
    cluster: Access, drawbridge: Drawbridge, observer: Drawbridge, hostile: str, workshop: str
) -> None:
    with unmoved(cluster, drawbridge):
        time.sleep(WATCHED_S)  # Audit, policies, events and the high-water mark take their turns.
        lengths = {name: len(log_of(name, drawbridge, observer)) for name in PROCESSES}
        before = {name: cpu_s(cluster, name) for name in PROCESSES}
        began = time.monotonic()
        with Load(cluster, workshop, HONEST, per_second=5) as honest:
            time.sleep(WATCHED_S)
        took_s = time.monotonic() - began
        used = {name: (cpu_s(cluster, name) - before[name]) / took_s for name in PROCESSES}

    print(
        honest.describe_event("hostile objects"),
        {name: round(part, 2) for name, part in used.items()},
    )
    assert honest.failures == []
    assert len(honest.created) > WATCHED_S
    assert {name: part for name, part in used.items() if part > MAX_CPU} == {}
    for name in PROCESSES:
        log = log_of(name, drawbridge, observer)
        assert_clean(log)
        lines = log[lengths[name] :].count("\n")
        assert lines < MAX_LINES_PER_S * took_s, f"{name} wrote {lines} lines:\n{log[-3000:]}"


def log_of(name: str, drawbridge: Drawbridge, observer: Drawbridge) -> str:
    return (observer if name == OBSERVER else drawbridge).log(name)


@pytest.mark.long
def test_parameters_of_many_values_take_little_memory(
    cluster: Access, drawbridge: Drawbridge, observer: Drawbridge, hostile: str, workshop: str
) -> None:
    """A value of two bytes takes some sixty as an object, in every process that keeps claims."""
    before = {name: resident_mib(cluster, name) for name in PROCESSES}
    stored = list(store(cluster, wide_parameters(), hostile))
    try:
        assert len(stored) == 2 * WIDE
        with (
            unmoved(cluster, drawbridge),
            Load(cluster, workshop, HONEST, per_second=2) as honest,
        ):
            time.sleep(WATCHED_S)
        grown = {name: resident_mib(cluster, name) - before[name] for name in PROCESSES}
    finally:
        for _, path in stored:
            cluster.request("DELETE", path)

    print(honest.describe_event("claims with parameters of many values"), grown)
    assert honest.failures == []
    assert {name: mib for name, mib in grown.items() if mib > MAX_GROWN_MIB} == {}


def wide_parameters() -> Iterator[Object]:
    """Yield claims and templates with as many values as the API server lets anybody write."""
    parameters: Object = {"a": [[] for _ in range(2400)]}
    entry = {"opaque": {"driver": "hostile.example.com", "parameters": parameters}}
    request = {"name": "gpu", "exactly": {"deviceClassName": "hostile.example.com"}}
    spec = {"devices": {"requests": [request], "config": [entry] * 32}}
    version = "resource.k8s.io/v1"
    for number in range(WIDE):
        metadata = {"name": f"wide-{number}"}
        yield {
            "apiVersion": version, "kind": "ResourceClaim", "metadata": metadata, "spec": spec
        }  # fmt: skip
        yield {
            "apiVersion": version,
            "kind": "ResourceClaimTemplate",
            "metadata": metadata,
            "spec": {"spec": spec},
        }


def resident_mib(cluster: Access, process: str) -> int:
    """Return the memory of a process."""
    record = cluster.children[process].record
    assert record is not None, f"{process} ended"
    return int(Path(f"/proc/{record.pid}/statm").read_text().split()[1]) * 4096 >> 20


def test_an_honest_pod_runs_beside_what_is_stored(
    cluster: Access, drawbridge: Drawbridge, hostile: str, namespace: str
) -> None:
    with unmoved(cluster, drawbridge):
        cluster.kubectl("create", "-n", namespace, "-f", "-", input=stream(HONEST))
        cluster.wait_running("honest", namespace, timeout_s=120)


def test_a_hostile_namespace_harms_only_itself(
    cluster: Access, drawbridge: Drawbridge, hostile: str, workshop: str
) -> None:
    """Its own pods are validated by its ten thousand quotas, and others are answered meanwhile."""
    with (
        unmoved(cluster, drawbridge),
        Load(cluster, hostile, HONEST, per_second=5) as own,
        Load(cluster, workshop, HONEST, per_second=5) as honest,
    ):
        time.sleep(10)

    print(own.describe_event(f"own pods beside {MANY} entries"), honest.describe_event("others"))
    assert honest.failures == []


def test_an_ownership_of_many_drivers_routes_and_is_taken_back(
    cluster: Access, drawbridge: Drawbridge, hostile: str, workshop: str
) -> None:
    """Reviews are routed while a driver is owned; honest pods with other drivers do not notice."""
    post(cluster, ownership())
    try:
        cluster.wait_until(lambda: is_routed(cluster), "the webhook that routes has rules")
        with unmoved(cluster, drawbridge), Load(cluster, workshop, HONEST, per_second=5) as honest:
            time.sleep(10)
        assert honest.failures == []
    finally:
        cluster.kubectl("delete", "allocatorownership", "default")
    cluster.wait_until(lambda: not is_routed(cluster), "it has none")


def is_routed(cluster: Access) -> bool:
    """Return True if pods are sent to the webhook that routes."""
    return any(
        webhook["name"] == ROUTING_WEBHOOK and webhook.get("rules")
        for configuration in cluster.objects("mutatingwebhookconfigurations")
        for webhook in configuration["webhooks"]
    )


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("a bomb", "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
            f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(9)
        )),
        ("depth", "[" * 100_000),
        ("an object of Python", "translation: !!python/object/apply:os.system ['false']"),
        ("words", f"translation: {json.dumps(TERMINAL)}"),
        ("an unknown key", f"{json.dumps(TERMINAL)}: 1"),
        ("a long number", "translation: {vocabularies: " + "9" * 100_000 + "}"),
    ],
    ids=lambda value: value if len(value) < 30 else "",
)  # fmt: skip
def test_commands_on_hostile_settings_and_objects_say_what_is_wrong(
    cluster: Access, drawbridge: Drawbridge, hostile: str, name: str, settings: str
) -> None:
    head = {"apiVersion": "v1", "kind": "ConfigMap"}
    metadata = {"name": "drawbridge-settings", "namespace": drawbridge.namespace}
    post(cluster, {**head, "metadata": metadata, "data": {"settings.yaml": settings}})
    try:
        arguments = ("translate", "--live", "-n", hostile, "-f", "-")
        completed = command_line(cluster, *arguments, input=stream(HONEST))
    finally:
        cluster.kubectl("delete", "configmap", "drawbridge-settings", "-n", drawbridge.namespace)

    assert completed.returncode in {1, 2}
    assert "Traceback" not in completed.stderr
    assert all(line.isprintable() for line in (completed.stdout + completed.stderr).split("\n"))


@pytest.mark.parametrize(
    "arguments",
    [
        ("inventory",),
        ("inventory", "--devices"),
        ("matrix",),
        ("why", "pod", "waits-plain"),
        ("why", "pod", "waits-bombs"),
        ("why", "claim", "many"),
        ("verify",),
    ],
    ids=" ".join,
)
def test_commands_print_nothing_that_a_terminal_obeys(
    cluster: Access, hostile: str, arguments: tuple[str, ...]
) -> None:
    completed = command_line(cluster, *arguments, "--live", "-n", hostile)

    assert completed.returncode in {0, 1, 2}
    assert "Traceback" not in completed.stderr
    assert all(line.isprintable() for line in (completed.stdout + completed.stderr).split("\n"))
