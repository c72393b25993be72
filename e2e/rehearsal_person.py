"""The person at a rehearsal: does the things by hand that the text of a plan asks for."""

from collections.abc import Mapping
from typing import Any, Final

from e2e.access import Access
from migration.rehearsal.documents import ENDS_LABEL
from migration.rehearsal.model import RehearsalInput, RehearsedWave

DELETE_TIMEOUT: Final = "--timeout=2m"
_FINISHED: Final = ("Succeeded", "Failed")


class Person:
    """A person: deletes pods without a controller, and applies their manifests again.

    Attributes:
        done: The things that were done by hand, as sentences.
    """

    def __init__(self, cluster: Access, rehearsal: RehearsalInput) -> None:
        self.done: list[str] = []
        self._cluster = cluster
        self._manifests: dict[str, Mapping[str, Any]] = {
            f"{entry['metadata']['namespace']}/{entry['metadata']['name']}": entry
            for entry in rehearsal.workloads
            if entry["kind"] == "Pod"
        }
        self._deleted: list[str] = []

    def prepare(self, wave: RehearsedWave) -> None:
        """Delete the pods that the drains of a wave would stop at, before its preflight check."""
        key, value = ENDS_LABEL
        for pod in self._cluster.objects("pods"):
            metadata = pod["metadata"]
            name = f"{metadata['namespace']}/{metadata['name']}"
            ends = metadata.get("labels", {}).get(key) == value
            is_in_the_way = (
                name in self._manifests
                and pod["spec"].get("nodeName") in wave.nodes
                and pod["status"].get("phase") not in _FINISHED
            )
            if is_in_the_way and not ends:
                self._delete(name)
                self._deleted.append(name)
                self.done.append(
                    f"before wave {wave.wave}: Pod {name} is deleted, since nothing creates it again and a drain "
                    "stops at it"
                )

    def create_again(self, wave: RehearsedWave) -> None:
        """Delete the pods that switch.sh names, and apply their manifests again."""
        for name in wave.by_hand:
            if name in self._manifests:
                self._delete(name)
                self._apply(name)
                self.done.append(
                    f"after wave-{wave.wave}/switch.sh: Pod {name} is deleted, and its manifest applied again"
                )
        self._deleted = [name for name in self._deleted if name not in wave.by_hand]

    def finish(self, wave: RehearsedWave) -> None:
        """Apply the manifests of the other pods that were deleted before a wave."""
        for name in self._deleted:
            self._apply(name)
            self.done.append(f"after wave {wave.wave}: the manifest of Pod {name} is applied again")
        self._deleted = []

    def _delete(self, name: str) -> None:
        namespace, _, pod = name.partition("/")
        words = (
            "delete",
            "pod",
            pod,
            f"--namespace={namespace}",
            "--ignore-not-found",
            DELETE_TIMEOUT,
        )
        self._cluster.kubectl(*words)

    def _apply(self, name: str) -> None:
        self._cluster.apply([self._manifests[name]])
