"""Hostile objects that are stored: every cache reads them or says that it cannot."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import ModuleType

import msgspec
import pytest

from clusterstate import projections, translation_projections
from observer import pods
from sidecar.state import projections as sidecar_projections
from testing.documents import Document
from testing.hostile_objects import cluster_objects, namespaced_objects, ownership

ROOMS = (projections, translation_projections, sidecar_projections, pods)
OBJECTS = (*cluster_objects(), *namespaced_objects(), ownership())


def projections_of(module: ModuleType) -> Iterator[Callable[[bytes], object]]:
    """Yield the functions of a module that project an object as the API server sends it."""
    for name, function in inspect.getmembers(module, inspect.isfunction):
        if name.startswith("project_") and [*inspect.signature(function).parameters] == ["raw"]:
            yield function


def test_there_are_projections() -> None:
    assert all(next(projections_of(module), None) for module in ROOMS)


@pytest.mark.parametrize(
    "document",
    OBJECTS,
    ids=lambda hostile_document: (
        f"{hostile_document['kind']}-{hostile_document['metadata']['name'][:20]}"
    ),
)
def test_every_projection_reads_it_or_is_an_error_of_decoding(document: Document) -> None:
    raw = msgspec.json.encode(document)
    for module in ROOMS:
        for project in projections_of(module):
            with suppress(msgspec.DecodeError):  # Which the informers count; any other ends them.
                project(raw)
