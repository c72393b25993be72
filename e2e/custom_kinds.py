"""Kinds of other projects, with objects that may have any field."""

from collections.abc import Iterator
from contextlib import contextmanager

from e2e.access import Access
from e2e.objects import Object
from testing.documents import api_object


def is_established(definition: Object) -> bool:
    """Return True if the API server serves the kind of a CustomResourceDefinition.

    One that was created a moment ago has `conditions: null`, at which `kubectl wait` gives up with
    "conditions accessor error".
    """
    conditions = definition.get("status", {}).get("conditions") or ()
    return any(
        condition["type"] == "Established" and condition["status"] == "True"
        for condition in conditions
    )


def wait_established(cluster: Access, *names: str) -> None:
    """Wait until the API server serves the kinds of CustomResourceDefinitions."""
    for name in names:
        cluster.wait_for("customresourcedefinitions", name, until=is_established)


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
    wait_established(cluster, name)
    yield
    cluster.kubectl("delete", "customresourcedefinition", name, "--wait=true")
