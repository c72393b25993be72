"""The cluster of examples/driver: two nodes with the inventory that is declared there."""

from pathlib import Path
from typing import Any, Final

import yaml

from driver.discovery.declared_file import read_file
from driver.model.settings import DRIVER_NAME
from driver.plan.slices import Publication, plan_pools, plan_writes, slice_document
from kube.manifests.dump import dump_yaml

ROOT: Final = Path(__file__).parent.parent
NODES: Final = ("node-a", "node-b")


def cluster() -> str:
    """Return the cluster as a stream of documents."""
    classes = yaml.load_all(
        (ROOT / "manifests/driver/deviceclasses.yaml").read_text(), Loader=yaml.CSafeLoader
    )
    return dump_yaml([*classes, *(document for node in NODES for document in _node(node))])


def _node(name: str) -> list[dict[str, Any]]:
    inventory = read_file(ROOT / "examples/driver/inventory.yaml")
    publication = Publication(driver=DRIVER_NAME, node=name, node_uid="")
    slices = plan_writes(plan_pools(publication, inventory), ()).to_apply
    labels = {"kubernetes.io/hostname": name}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
    return [node, *(slice_document(slice_) for slice_ in slices)]
