"""The observer beside a stock scheduler: its events about each kind of shortage, and their rate.

It runs with the account and the roles of manifests/observer, and without a webhook of ours.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from e2e import inventory, shortages
from e2e.access import Access, Object, stream
from e2e.cluster import Cluster
from e2e.drawbridge import OBSERVER, ROOT, Drawbridge, command_line, install_drawbridge
from e2e.objects import pod
from e2e.older_kubernetes import MINOR, needs
from e2e.shortages import LABEL, SHORTAGES, TAINT_RULES_SINCE, Shortage
from kube.names import ENFORCEMENT_LABEL
from testing.documents import api_object

MANIFESTS: Final = ROOT / "manifests" / "observer"
IMPATIENT: Final = {
    "observer": {
        "initialDelay": "2s",
        "reevaluationPeriod": "500ms",
        "initialEventInterval": "1s",
        "numbersEventInterval": "10m",
        "cpuFraction": 0.5,
        "eventsPerSecond": 200,
    }
}
ALL_NOTES_S: Final = 60.0
TOLD: Final = tuple(shortage for shortage in SHORTAGES if shortage.since <= MINOR)


@pytest.fixture(scope="module")
def observer(cluster: Access) -> Iterator[Drawbridge]:
    drawbridge_ = install_drawbridge(cluster, manifests=MANIFESTS, settings=IMPATIENT)
    yield drawbridge_
    drawbridge_.uninstall()


@pytest.fixture(scope="module")
def notes(cluster: Access, observer: Drawbridge, stage: str) -> Iterator[dict[str, str]]:
    """All kinds of shortage at once; slug to the note of the one event of its pod."""
    began = time.monotonic()
    # Where the webhook is installed, it would refuse most of them before they wait.
    cluster.kubectl("label", "namespace", stage, f"{ENFORCEMENT_LABEL}=off")
    cluster.apply([object_ for shortage in TOLD for object_ in shortages.inventory_of(shortage)])
    names = cluster.add_nodes([shortages.node_of(shortage) for shortage in TOLD])
    holders = [object_ for shortage in TOLD for object_ in shortages.holders_of(shortage)]
    applied(cluster, stage, holders)
    for holder in holders:
        if holder["kind"] == "Pod":
            cluster.wait_running(holder["metadata"]["name"], stage)
    applied(
        cluster,
        stage,
        [object_ for shortage in TOLD for object_ in shortages.waiting_of(shortage)],
    )
    print(f"all pods are there after {time.monotonic() - began:.1f} s")
    began = time.monotonic()
    written: dict[str, str] = {}

    def all_have_notes() -> bool:
        written.update(
            {event["regarding"]["name"]: event["note"] for event in events(cluster, stage)}
        )
        return {shortage.slug for shortage in TOLD} <= written.keys()

    try:
        cluster.wait_until(all_have_notes, "every pod has an event", timeout_s=ALL_NOTES_S)
    except AssertionError as error:
        missing = {shortage.slug for shortage in TOLD} - written.keys()
        raise AssertionError(
            f"without an event: {sorted(missing)}\n{observer.log(OBSERVER)}"
        ) from error
    print(f"and have events {time.monotonic() - began:.1f} s later")
    yield written
    cluster.remove_nodes(names)
    published = [object_ for shortage in TOLD for object_ in shortages.inventory_of(shortage)]
    flags = ("--ignore-not-found", "--wait=false")
    cluster.kubectl("delete", *flags, "-f", "-", input=stream(published))


def applied(cluster: Access, namespace: str, objects: list[Object]) -> None:
    for object_ in objects:
        object_["metadata"]["namespace"] = namespace
    cluster.apply(objects)


def events(cluster: Access, namespace: str) -> list[Object]:
    """Return the events that the observer has written in a namespace."""
    return [
        object_
        for object_ in cluster.objects("events.events.k8s.io", namespace)
        if object_["reportingController"] == "drawbridge.observer"
    ]


@pytest.mark.parametrize(
    "shortage",
    [
        pytest.param(
            shortage,
            id=shortage.name,
            marks=needs(shortage.since, shortage.needed),
        )
        for shortage in SHORTAGES
    ],
)
def test_each_shortage_has_its_words(notes: dict[str, str], shortage: Shortage) -> None:
    note = notes[shortage.slug]

    print(f"{shortage.slug}: {note}")
    assert [] == [words for words in shortage.words if words not in note]
    assert len(note.encode()) <= 1024


def test_the_command_line_says_the_same(cluster: Access, notes: dict[str, str], stage: str) -> None:
    for slug in ("taken", "small", "alike", "tainted"):
        command = ("why", "pod", slug, "-n", stage, "--live", "-o", "json")
        command_line_ = command_line(cluster, *command)

        assert command_line_.returncode == 0, command_line_.stderr
        assert notes[slug] == json.loads(command_line_.stdout)["event"]


def test_each_pod_has_one_event(cluster: Access, notes: dict[str, str], stage: str) -> None:
    cluster.kubectl("annotate", "nodes", "-l", LABEL, "story=churn", "--overwrite")
    cluster.kubectl("label", "resourceslices", "--all", "story=churn", "--overwrite")
    time.sleep(3.0)

    counts: dict[str, int] = {}
    for event in events(cluster, stage):
        name = event["regarding"]["name"]
        counts[name] = counts.get(name, 0) + 1

    assert {} == {name: count for name, count in counts.items() if count != 1}
    assert notes.keys() == counts.keys()


def test_a_restart_repeats_nothing(
    cluster: Access, observer: Drawbridge, notes: dict[str, str], stage: str
) -> None:
    before = {event["metadata"]["name"] for event in events(cluster, stage)}
    observer.stop(OBSERVER)
    observer.start(OBSERVER)
    observer.wait_ready()
    existing = 'drawbridge_events_total{result="existing"}'
    cluster.wait_until(
        lambda: any(
            line.startswith(existing) and float(line.split()[1]) >= len(notes)
            for line in observer.metrics(OBSERVER).splitlines()
        ),
        "all pods were evaluated again",
    )

    assert before == {event["metadata"]["name"] for event in events(cluster, stage)}


def test_a_pod_that_finds_its_place_gets_no_further_event(
    cluster: Access, notes: dict[str, str], stage: str
) -> None:
    cluster.kubectl("delete", "pod", "holder-taken-0", "-n", stage)

    cluster.wait_running("taken", stage)

    time.sleep(2.0)
    about = [event for event in events(cluster, stage) if event["regarding"]["name"] == "taken"]
    assert [notes["taken"]] == [event["note"] for event in about]


def test_an_event_says_what_has_changed_and_changed_back(
    cluster: Access, notes: dict[str, str], stage: str
) -> None:
    cluster.kubectl("taint", "node", "lack-few", "example.com/closed=now:NoSchedule")

    def changed() -> Object | None:
        events_of_few = [
            event for event in events(cluster, stage) if event["regarding"]["name"] == "few"
        ]
        return next(
            (event for event in events_of_few if "example.com/closed" in event["note"]), None
        )

    cluster.wait_until(changed, "an event names the taint")
    assert "example.com/closed" not in notes["few"]

    cluster.kubectl("taint", "node", "lack-few", "example.com/closed-")

    def repeated() -> list[Object]:
        repeated_events = [
            event for event in events(cluster, stage) if event["note"] == notes["few"]
        ]
        return [event for event in repeated_events if event.get("series", {}).get("count") == 2]

    cluster.wait_until(repeated, "the first event has happened again")


def test_a_pod_that_waits_for_a_cpu_is_told_so_and_not_about_devices(
    cluster: Access, observer: Drawbridge, notes: dict[str, str], stage: str
) -> None:
    (few,) = [shortage for shortage in SHORTAGES if shortage.slug == "busy"]
    template = {"gpu": "holder-busy-0"}
    greedy = pod("greedy", claims=template, nodeSelector={LABEL: few.slug})
    greedy["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "1000"}
    applied(cluster, stage, [greedy])
    cluster.wait_for(
        "pods",
        "greedy",
        stage,
        until=lambda stored: any(
            condition["type"] == "PodScheduled" and condition["status"] == "False"
            for condition in stored.get("status", {}).get("conditions", ())
        ),
    )

    def told() -> list[Object]:
        return [event for event in events(cluster, stage) if event["regarding"]["name"] == "greedy"]

    cluster.wait_until(lambda: bool(told()), "the pod has an event")
    (event,) = told()
    assert event["reason"] == "InsufficientResource"
    assert event["note"].startswith("Devices are free on node ")
    assert "Insufficient cpu: the pod requests 1k" in event["note"]


def test_metrics_count_pods_by_reason(observer: Drawbridge, notes: dict[str, str]) -> None:
    metrics = observer.metrics(OBSERVER)

    for reason in ("allocated", "selector", "taint", "capacity", "claimNotFound"):
        assert f'drawbridge_observer_blocked_pods{{reason="{reason}"}}' in metrics


@pytest.mark.parametrize(
    "command",
    [
        "get secrets -A",
        "get configmaps -A",
        "get pods -n default any",
        "delete pod -n default any",
        "annotate node lack-few a=b",
        "delete events -n default --all",
        "create namespace any",
        "get deployments -A",
    ],
)
def test_it_may_read_what_counts_and_nothing_else(
    cluster: Access, observer: Drawbridge, notes: dict[str, str], command: str
) -> None:
    output = cluster.kubectl(
        *command.split(),
        check=False,
        kubeconfig=cluster.kubeconfig_for(observer.namespace, OBSERVER),
    )

    assert output.returncode == 1
    assert "forbidden: User" in output.stderr


OWN_KINDS = ("devicecompatibilitypolicies", "allocatorownerships")


def test_nothing_that_it_needs_was_forbidden(observer: Drawbridge) -> None:
    """After all that stories before this one had it do."""
    lines = [
        line
        for line in observer.log(OBSERVER).lower().splitlines()
        # Older versions do not serve these, which is told once.
        if MINOR >= TAINT_RULES_SINCE or "devicetaintrules" not in line
        # Nor does a cluster without the definitions of ours.
        if not ('"status":404' in line and any(kind in line for kind in OWN_KINDS))
    ]
    assert [] == [line for line in lines if "forbidden" in line or "failed" in line]


@pytest.mark.long
def test_the_page_shows_the_events(tmp_path: Path) -> None:
    """Ten pods on a cluster of their own, since every node has a part in their events."""
    page = (ROOT / "docs" / "howto" / "read-a-denial.md").read_text()
    with Cluster(tmp_path / "page") as cluster:
        objects = list(documents("cluster.yaml"))
        cluster.apply([object_ for object_ in objects if object_["kind"] == "DeviceClass"])
        names = [object_["metadata"]["name"] for object_ in objects if object_["kind"] == "Node"]
        slices = [object_ for object_ in objects if object_["kind"] == "ResourceSlice"]
        cluster.add_nodes(
            map(inventory.kwok_node, names),
            lambda node: [slice_ for slice_ in slices if slice_["spec"]["nodeName"] == node],
        )
        cluster.kubectl("create", "namespace", "team")
        cluster.wait_for("serviceaccounts", "default", "team")
        for claim in documents("held.yaml"):
            del claim["status"]
            name = claim["metadata"]["name"]
            entry = {"name": "gpu", "resourceClaimName": name}
            applied(cluster, "team", [claim, pod(name, resourceClaims=[entry])])
            cluster.wait_running(name, "team")
        drawbridge_ = install_drawbridge(cluster, manifests=MANIFESTS, settings=IMPATIENT)
        waiting = list(documents("pods.yaml"))
        cluster.apply(waiting)
        count = sum(object_["kind"] == "Pod" for object_ in waiting)
        cluster.wait_until(lambda: len(events(cluster, "team")) == count, "every pod has an event")
        print(cluster.kubectl("events", "-n", "team", "--types=Warning").stdout)
        notes = {event["regarding"]["name"]: event["note"] for event in events(cluster, "team")}
        drawbridge_.uninstall()

    assert {} == {name: note for name, note in notes.items() if note not in page}


def documents(file: str) -> Iterator[Object]:
    """The objects of a file of examples/waiting."""
    yield from yaml.load_all(
        (ROOT / "examples" / "waiting" / file).read_text(), Loader=yaml.CSafeLoader
    )


# --- its account ----------------------------------------------------------------------------------


def test_its_token_is_not_good_for_events_of_others(
    cluster: Access, observer: Drawbridge, namespace: str
) -> None:
    pod_reference = {"apiVersion": "v1", "kind": "Pod", "name": "a", "namespace": namespace}
    forged = api_object(
        "Event",
        "a",
        namespace,
        eventTime="2026-11-20T00:00:00.000000Z",
        reportingController="kubelet",
        reportingInstance="a",
        regarding=pod_reference,
        type="Normal",
        reason="A",
        action="A",
        note="a",
    )

    output = cluster.kubectl(
        *("create", "--validate=false", "-f", "-"),
        input=stream(forged),
        check=False,
        kubeconfig=cluster.kubeconfig_for(observer.namespace, OBSERVER),
    )

    assert "its events are reported by drawbridge.observer" in output.stderr
