"""Objects of an earlier version are served after an upgrade, and those of this one after a rollback.

The earlier version is the code of a commit of this repository, executed beside this one. A clone that
lacks the commit, such as a shallow one, skips these tests.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from os import environ
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml

from driver.plan.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from kube.api.meta import convert, encode
from kube.manifests.dump import dump_yaml
from kube.names import REQUEST_ANNOTATION
from testing.documents import Document
from testing.earlier import extract
from testing.legacy import pod_document
from testing.oracle.legacy.questions import VOCABULARIES, read_executed

pytestmark = pytest.mark.oracle

ROOT: Final = Path(__file__).parents[1]
COMMIT: Final = "1922700e"
"""The last commit before the packages of the migration; nothing has been released yet."""

DIFFERENCES: Final[Mapping[str, Mapping[str, str]]] = {
    "upgrade": {
        "aliyun": "an amount of an init container was added to those of the others; the larger one counts",
        "ascend": "a share without cores requested the whole NPU, and requests the cores of its template",
    },
    "rollback": {
        "aliyun": "as for the upgrade",
        "ascend": "as for the upgrade",
        "hygon": "the profile has fields that the earlier version does not know",
        "volcano": "the sizes in the names of MIG profiles are recorded, which the earlier version does not know",
    },
}
"""Vocabulary to the reason that pods of one version have other claims in the other."""

CHECKPOINT: Final = {
    "bootId": "0b6a51f6",
    "claims": {
        "6f1f1c0e-2d5c-4b7a-9a55-0d2f1f6f7c11": {
            "uid": "6f1f1c0e-2d5c-4b7a-9a55-0d2f1f6f7c11",
            "namespace": "team",
            "name": "train-gpu",
            "state": "Completed",
            "results": [
                {
                    "request": "gpu",
                    "driver": "gpu.drawbridge.internal",
                    "pool": "n",
                    "device": "gpu-0",
                }
            ],
            "devices": {"gpu-0": {"name": "gpu-0", "attributes": {"type": {"string": "gpu"}}}},
            "pods": ["train"],
        }
    },
}


class Version(NamedTuple):
    """A version of the programs, in a folder."""

    folder: Path

    def run(self, *arguments: str, text: str = "") -> str:
        """Return the output of a command of Python, with the packages of the version."""
        result = subprocess.run(
            [sys.executable, *arguments],
            input=text,
            env={**environ, "PYTHONPATH": str(self.folder), "PYTHONSAFEPATH": "1"},
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=False,
        )
        return result.stdout

    def translate(
        self, documents: Sequence[Document], profiles: Path | None = None
    ) -> "Translated":
        """Return the translation of pods by the version, also of pods that are translated already."""
        chosen_profiles = () if profiles is None else ("--profiles", str(profiles))
        call = ("-m", "cli", "translate", "-f", "-", "-o", "json", *chosen_profiles)
        answer = json.loads(self.run(*call, text=dump_yaml(documents)))
        return Translated(answer["objects"])


class Translated(NamedTuple):
    """Objects of an answer."""

    objects: Sequence[Document]

    @property
    def pods(self) -> list[Document]:
        """The pods with a record."""
        return [
            entry
            for entry in self.objects
            if entry["kind"] == "Pod"
            and REQUEST_ANNOTATION in (entry["metadata"].get("annotations") or {})
        ]

    @property
    def templates(self) -> dict[str, Document]:
        """The template specs by name."""
        return {
            entry["metadata"]["name"]: entry["spec"]
            for entry in self.objects
            if entry["kind"] == "ResourceClaimTemplate"
        }


THIS: Final = Version(ROOT)


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Version:
    folder = tmp_path_factory.mktemp("previous")
    if why := extract(COMMIT, folder):
        pytest.skip(why)
    return Version(folder)


def legacy_pods() -> Iterator[Document]:
    """Yield the pods that legacy code was asked about, equal ones once."""
    known: set[str] = set()
    for vocabulary in VOCABULARIES:
        for scenario in read_executed(vocabulary).scenarios:
            for asked_pod in scenario.pods:
                document = pod_document(asked_pod, "pod")
                text = json.dumps(document, sort_keys=True)
                if text not in known:
                    known.add(text)
                    document["metadata"]["name"] = f"pod-{len(known)}"
                    yield document


def vocabulary_of(pod: Document) -> str:
    record = json.loads(pod["metadata"]["annotations"][REQUEST_ANNOTATION])
    return str(record["profiles"][0]["vocabulary"])


@pytest.mark.parametrize("direction", DIFFERENCES)
def test_pods_keep_their_claims(direction: str, previous: Version) -> None:
    """The controller derives templates from the record of a pod, written by either version."""
    before, after = (previous, THIS) if direction == "upgrade" else (THIS, previous)
    # A cluster keeps the earlier profiles; the earlier version does not know later ones.
    profiles = previous.folder / "translation" / "profiles" if direction == "upgrade" else None
    written = before.translate(list(legacy_pods()))

    read = after.translate(written.pods, profiles)

    served = {pod["metadata"]["name"] for pod in read.pods}
    lost = [pod for pod in written.pods if pod["metadata"]["name"] not in served]
    assert {vocabulary_of(pod) for pod in lost} == DIFFERENCES[direction].keys()
    assert len(served) >= 100
    for pod in written.pods:
        name = pod["metadata"]["name"]
        for entry in pod["spec"].get("resourceClaims", ()) if name in served else ():
            template = entry["resourceClaimTemplateName"]
            assert read.templates[template] == written.templates[template], name


def test_the_checkpoint_of_a_driver_is_read_by_the_other_version(previous: Version) -> None:
    """A claim that is prepared stays prepared, so its pod runs on."""
    read_and_write = (
        "import sys\n"
        "from driver.plan.checkpoint import decode_checkpoint, encode_checkpoint\n"
        "checkpoint = decode_checkpoint(sys.stdin.buffer.read())\n"
        "sys.stdout.buffer.write(encode_checkpoint(checkpoint))\n"
    )
    checkpoint = convert(CHECKPOINT, Checkpoint)

    there_and_back = previous.run("-c", read_and_write, text=encode_checkpoint(checkpoint).decode())

    assert encode(decode_checkpoint(there_and_back.encode())) == encode(checkpoint)


def lost_fields(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield losses of a schema: fields, values, and objects without a field that is required now."""
    for name in set(new.get("required", ())) - set(old.get("required", ())):
        yield f"{path}.{name} is required"
    if "enum" in new and not set(old.get("enum", ())) <= set(new["enum"]):
        yield f"{path} lost a value"
    for name, below in old.get("properties", {}).items():
        if name not in new.get("properties", {}):
            yield f"{path}.{name} is gone"
        else:
            yield from lost_fields(below, new["properties"][name], f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if isinstance(old.get(name), dict) and isinstance(new.get(name), dict):
            yield from lost_fields(old[name], new[name], f"{path}.{name}")


def schemas(version: Version) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for file in sorted((version.folder / "manifests" / "base").glob("*.yaml")):
        for document in yaml.load_all(file.read_text(), Loader=yaml.CSafeLoader):
            if document and document["kind"] == "CustomResourceDefinition":
                for served in document["spec"]["versions"]:
                    name = f"{document['spec']['names']['kind']}/{served['name']}"
                    yield name, served["schema"]["openAPIV3Schema"]


def test_stored_objects_of_our_kinds_are_valid_after_an_upgrade(previous: Version) -> None:
    """AllocatorOwnerships, profiles and policies; the API server validates them at each write."""
    new = dict(schemas(THIS))
    old = dict(schemas(previous))

    assert "AllocatorOwnership/v1alpha1" in old
    assert not [
        fault for name, schema in old.items() for fault in lost_fields(schema, new[name], name)
    ]
