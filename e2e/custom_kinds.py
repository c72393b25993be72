"""Kinds of other projects, with objects that may have any field."""

from collections.abc import Iterator
from contextlib import contextmanager

from e2e.access import Access
from testing.documents import api_object


@contextmanager
def served_kind(
    cluster: Access, kind: str, plural: str, group: str, version: str = "v1"
) -> Iterator[None]:
    """Have the API server serve a version of a namespaced kind until the end of the block."""
    name = f"{plural}.{group}"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    definition = api_object(
        "CustomResourceDefinition",
        name,
        spec={
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": [served],
        },
    )
    cluster.apply(definition)
    cluster.wait_for(
        "customresourcedefinitions",
        name,
        until=lambda stored: any(
            condition["type"] == "Established" and condition["status"] == "True"
            for condition in stored.get("status", {}).get("conditions") or ()
        ),
    )
    yield
    cluster.kubectl("delete", "customresourcedefinition", name, "--wait=true")
