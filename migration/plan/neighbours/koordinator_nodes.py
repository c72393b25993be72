"""A note on nodes of Koordinator with NVIDIA's device plugin: their switch is not to NVIDIA's driver. Pure."""

from collections.abc import Iterable, Iterator

from findings.text import join_names
from kube.manifests.source import SourceObject
from migration.cluster.evidence import text_map
from migration.cluster.node_devices import GPU, Source
from migration.plan.model.plan import Wave


def koordinator_driver_notes(wave: Wave, objects: Iterable[SourceObject]) -> Iterator[str]:
    """Yield a note on the driver of a wave's nodes that have Koordinator's Device object and offer `nvidia.com/gpu`.

    Args:
        wave: The wave.
        objects: The cluster's objects.
    """
    drivers = {node.name: node.devices for node in wave.nodes if node.source == Source.KOORDINATOR}
    names = [
        source.name
        for source in objects
        if (source.api_version, source.kind) == ("v1", "Node")
        and source.name in drivers
        and text_map(source.document, "status", "allocatable").get(GPU, "0") != "0"
    ]
    if not names:
        return
    driver = join_names(sorted({driver for name in names for driver in drivers[name]}))
    yield (
        f"koordlet has registered the GPUs of {join_names(sorted(names))}, so these nodes get the driver {driver}, and pods with "
        f"{GPU} whole GPUs of it: where no pod needs Koordinator's names there, and NVIDIA's driver is to be theirs, keep koordlet "
        "from these nodes by node affinity, delete their Device objects, and plan again from a new snapshot"
    )
