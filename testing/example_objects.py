"""Objects of examples, stored in an API server as `kubectl create -n default` would."""

from collections.abc import Iterable

from answers.model.snapshot_kinds import CUSTOM_KINDS, KINDS
from kube.api.urls import CUSTOM_RESOURCE_DEFINITIONS, Resource
from kube.manifests.reader import read_objects
from testing.documents import Document
from testing.fake_api_server import FakeApiServer


def documents_of(text: str) -> list[Document]:
    """Return the objects of a manifest."""
    return [entry.document for entry in read_objects(text.encode(), "example.yaml")]


def resource_of(document: Document) -> Resource:
    """Return the resource that has an object."""
    if document["kind"] == "CustomResourceDefinition":
        return CUSTOM_RESOURCE_DEFINITIONS
    group, _, version = document["apiVersion"].rpartition("/")
    name = f"{document['kind']}.{group}"
    for resource in CUSTOM_KINDS.get(name, ()):
        if resource.version == version:
            return resource
    return KINDS.get(document["kind"]) or KINDS[name]


def store(server: FakeApiServer, documents: Iterable[Document]) -> None:
    """Store objects, those of namespaces in `default`."""
    for document in documents:
        resource = resource_of(document)
        namespace = {"namespace": "default"} if resource.namespaced else {}
        server.put(resource, {**document, "metadata": {**namespace, **document["metadata"]}})
