"""The manual steps of a rehearsal between the scripts of a plan."""

from collections.abc import Iterable
from typing import Any

from e2e.rehearsal_person import Person
from migration.rehearsal.model import RehearsalInput, RehearsedWave


class Calls:
    """A cluster with some pods, and the calls to it."""

    def __init__(self, *pods: dict[str, Any]) -> None:
        self.calls: list[str] = []
        self._pods = pods

    def objects(self, kind: str) -> list[dict[str, Any]]:
        assert kind == "pods"
        return list(self._pods)

    def kubectl(self, *words: str) -> None:
        self.calls.append(" ".join(words[:4]))

    def apply(self, objects: Iterable[dict[str, Any]]) -> None:
        self.calls += [f"apply {entry['metadata']['name']}" for entry in objects]


def pod(name: str, node: str = "n", *, phase: str = "Running", **labels: str) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "a", "labels": labels},
        "spec": {"nodeName": node},
        "status": {"phase": phase},
    }


def person_at(cluster: Any, *manifests: dict[str, Any]) -> Person:
    rehearsal = RehearsalInput(objects=(), nodes=(), workloads=manifests, places={}, waves=())
    return Person(cluster, rehearsal)


def test_a_bare_pod_is_deleted_before_a_wave_and_applied_after_it() -> None:
    """The drain of the preflight check stopped at it, and no rehearsal came further."""
    pods = (
        pod("debug"),
        pod("elsewhere", "m"),
        pod("done", phase="Succeeded"),
        pod("ends", ends="cordoned"),
    )
    cluster = Calls(*pods, pod("of-a-workload"))
    person = person_at(cluster, *pods)
    wave = RehearsedWave(wave=2, nodes=("n",))

    person.prepare(wave)
    person.create_again(wave)
    assert ["delete pod debug --namespace=a"] == cluster.calls
    person.finish(wave)
    person.finish(RehearsedWave(wave=3))

    assert "apply debug" == cluster.calls[-1]
    assert [
        "before wave 2: Pod a/debug is deleted, since nothing creates it again and a drain stops at it",
        "after wave 2: the manifest of Pod a/debug is applied again",
    ] == person.done


def test_a_bare_pod_of_the_waves_namespace_is_created_again_after_the_switch() -> None:
    cluster = Calls(pod("debug"))
    person = person_at(cluster, pod("debug"))
    wave = RehearsedWave(wave=2, nodes=("n",), by_hand=("a/debug", "a/not-rehearsed"))

    person.prepare(wave)
    person.create_again(wave)
    person.finish(wave)

    deleted = "delete pod debug --namespace=a"
    assert [deleted, deleted, "apply debug"] == cluster.calls
    assert "after wave-2/switch.sh" in person.done[-1]
