"""The Helm release of NVIDIA's DRA driver that a cluster has already. Pure.

Its chart is called `nvidia-dra-driver-gpu` up to 25.12.0, with versions of the calendar, and
`dra-driver-nvidia-gpu` from 0.4.0 on. A second release beside the first would put two drivers on a node.

Source: kubernetes-sigs/dra-driver-nvidia-gpu, site/content/docs/upgrade.md and, of the chart,
templates/_helpers.tpl: the label `helm.sh/chart` has `nameOverride` in place of the chart's name.

Whoever may write a DaemonSet in a namespace can write these labels, and whoever may write a Secret there
can write the values of a release. What is here proposes a release, and a person confirms it.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from kube.api.workloads import DAEMON_SET
from kube.manifests.source import SourceObject
from migration.cluster.evidence import list_at, mapping_at, text_map
from migration.plan.drivers.driver_daemon_sets import registers_driver
from migration.plan.drivers.vendors import NVIDIA_LABEL
from migration.plan.model.driver_charts import DriverRelease
from migration.plan.model.plan import is_name, is_namespace

CHART: Final = "dra-driver-nvidia-gpu"
FORMER_CHART: Final = "nvidia-dra-driver-gpu"
CHART_VERSION: Final = "0.5.0"
"""The version of the chart whose values the runbooks set."""

_FIRST_CALENDAR_VERSION: Final = 25
_IMAGES: Final = (CHART, FORMER_CHART, "k8s-dra-driver-gpu")
_CHART_LABEL: Final = re.compile(
    r"[A-Za-z0-9][-A-Za-z0-9._]*?-v?((\d{1,4})\.\d{1,4}\.\d{1,4}(?:-[0-9A-Za-z.-]{1,20})?)"
)


def propose_driver_releases(objects: Iterable[SourceObject]) -> dict[str, DriverRelease]:
    """Return DaemonSet, as `Kind/namespace/name`, to the release that its labels name."""
    releases = {
        f"DaemonSet/{source.namespace or 'default'}/{source.name}": release
        for source in objects
        if source.kind == DAEMON_SET
        for release in [_read_release(source)]
        if release is not None
    }
    return dict(sorted(releases.items()))


def _read_release(source: SourceObject) -> DriverRelease | None:
    labels = text_map(source.document, "metadata", "labels")
    annotations = text_map(source.document, "metadata", "annotations")
    label = labels.get("helm.sh/chart", "")
    match = _CHART_LABEL.fullmatch(label)
    if match is None or not _runs_driver(source, label):
        return None
    name = annotations.get("meta.helm.sh/release-name") or labels.get(
        "app.kubernetes.io/instance", ""
    )
    namespace = annotations.get("meta.helm.sh/release-namespace") or source.namespace or "default"
    if not is_name(name) or not is_namespace(namespace):
        return None
    is_former = int(match[2]) >= _FIRST_CALENDAR_VERSION
    selector = text_map(source.document, "spec", "template", "spec", "nodeSelector")
    return DriverRelease(
        namespace=namespace,
        name=name,
        chart=FORMER_CHART if is_former else CHART,
        version=match[1],
        waits_for_label=selector.get(NVIDIA_LABEL) == "true",
    )


def propose_drivers_by_hand(objects: Iterable[SourceObject]) -> dict[str, DriverRelease]:
    """Return DaemonSet, as `Kind/namespace/name`, to a release in its name, for drivers without the label of a chart.

    Their version is empty: no command of Helm changes them. The daemons of a ComputeDomain have the same image, and
    register no driver.
    """
    drivers = {}
    for source in sorted(objects, key=lambda source: (source.namespace or "", source.name)):
        namespace = source.namespace or "default"
        if (
            source.kind != DAEMON_SET
            or not (is_name(source.name) and is_namespace(namespace))
            or not (_runs_driver(source, "") and registers_driver(source.document))
            or _read_release(source) is not None
        ):
            continue
        selector = text_map(source.document, "spec", "template", "spec", "nodeSelector")
        drivers[f"DaemonSet/{namespace}/{source.name}"] = DriverRelease(
            namespace=namespace,
            name=source.name,
            chart=CHART,
            version="",
            waits_for_label=selector.get(NVIDIA_LABEL) == "true",
        )
    return drivers


def _runs_driver(source: SourceObject, label: str) -> bool:
    if label.startswith((f"{CHART}-", f"{FORMER_CHART}-")):
        return True
    return any(image in _IMAGES for image in _image_names(source))


def _image_names(source: SourceObject) -> Iterator[str]:
    """Yield the names of the images, without registry, tag and digest."""
    for container in list_at(source.document, "spec", "template", "spec", "containers"):
        image = mapping_at(container).get("image")
        if isinstance(image, str):
            yield image.partition("@")[0].rpartition("/")[2].partition(":")[0]
