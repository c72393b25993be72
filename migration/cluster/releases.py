"""The releases of other components in a cluster. Pure."""

import re
from collections.abc import Iterable
from typing import Final

from kube.manifests.source import SourceObject
from migration.cluster.evidence import list_at, mapping_at

KUEUE_IMAGE: Final = re.compile(r"(?:^|/)kueue:v?0\.(\d{1,3})(?!\d)")
"""The image of Kueue's controller, with its minor release."""


def deployed_release(objects: Iterable[SourceObject], image: re.Pattern[str]) -> int | None:
    """Return the minor release of a component, by the image of its Deployment; None if none shows it.

    Args:
        objects: The cluster's objects.
        image: The images of the component, with the minor release as the first group.
    """
    for source in objects:
        if source.kind != "Deployment":
            continue
        for container in list_at(source.document, "spec", "template", "spec", "containers"):
            match = image.search(str(mapping_at(container).get("image")))
            if match is not None:
                return int(match[1])
    return None
