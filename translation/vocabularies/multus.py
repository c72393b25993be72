"""Networks of Multus with a bandwidth, as claims that reserve it on an interface of the node.

Multus shapes the traffic of such a network, and nothing reserves its bandwidth. A driver that runs CNI
plugins itself can do both, where its interfaces publish a bandwidth and the operator lets it attach
networks in place of Multus. `translation.cluster.network_claims` says which networks of a pod these are.

Source: k8snetworkplumbingwg/multus-cni, pkg/types, NetworkSelectionElement; containernetworking/plugins,
plugins/meta/bandwidth, whose rates are bits per second.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec

from findings.finding import Code, error
from kube.api.network_attachments import NETWORKS
from kube.names import GROUP
from kube.quantity import Quantity
from translation.model.intents import (
    DeviceFilter,
    DeviceKind,
    Intent,
    LegacyPod,
    NetworkAttachment,
    Translation,
    Vocabulary,
    annotation_path,
)
from translation.model.keys import KeyOutcome, Table, annotation

NAME: Final = "multus"
ATTACHMENTS: Final = f"{GROUP}/network-attachments"
"""The networks that become claims; in a translation record only. Pods do not have this key."""

TABLE: Final[Table] = (
    annotation(
        NETWORKS,
        KeyOutcome.CONFIG,
        "one interface of the driver for each network with a `bandwidth`: the larger of its rates as "
        "`bandwidth`, the interface that the network names as its `master`, and its CNI configuration "
        "with the rates. A warning, as Multus would attach it, too",
        case="a network with a `bandwidth`, where a driver serves `multus` and publishes bandwidth",
    ),
    annotation(
        NETWORKS,
        KeyOutcome.KEPT,
        "Multus attaches it, and nothing reserves a bandwidth, with an info (`bandwidthNotReserved`)",
        case="any other network",
    ),
)


class Attachment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A network that a claim attaches.

    Attributes:
        interface: Its name in the pod.
        master: The interface of the node; empty for any.
        bandwidth: Bits per second.
        config: The CNI configuration.
    """

    name: str
    namespace: str
    interface: str
    master: str = ""
    bandwidth: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
    config: Mapping[str, Any]


def encode_attachments(attachments: Sequence[Attachment]) -> str:
    """Return the text of the annotation."""
    return msgspec.json.encode(attachments, order="sorted").decode()


def describe_attachments(text: str) -> Iterator[str]:
    """Yield the annotation of Multus and the networks in it that are attached by claims."""
    try:
        attachments = msgspec.json.decode(text, type=tuple[Attachment, ...])
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return
    networks = (
        f"{attachment.namespace}/{attachment.name} as {attachment.interface} with "
        f"{Quantity(attachment.bandwidth)} bit/s"
        for attachment in attachments
    )
    yield f"{NETWORKS}: {', '.join(networks)}"


def translate(pod: LegacyPod) -> Translation:
    """Translate the networks that a driver attaches in place of Multus."""
    text = pod.annotations.get(ATTACHMENTS)
    containers = [container.name for container in pod.containers if not container.init]
    if text is None or not containers:
        return Translation()
    path = annotation_path(NETWORKS)
    try:
        attachments = msgspec.json.decode(text, type=tuple[Attachment, ...])
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as fault:
        finding = error(Code.MALFORMED_ANNOTATION, path, f"are no attachments: {fault}")
        return Translation(findings=(finding,))
    return Translation(
        intents=tuple(
            Intent(
                container=containers[0],
                kind=DeviceKind.NIC,
                count=1,
                bandwidth=Quantity(attachment.bandwidth),
                filter=DeviceFilter(interface=attachment.master or None),
                network=NetworkAttachment(
                    name=attachment.name,
                    namespace=attachment.namespace,
                    interface=attachment.interface,
                    config=attachment.config,
                ),
                paths={"count": path, "network": path},
            )
            for attachment in attachments
        )
    )


VOCABULARY: Final = Vocabulary(
    name=NAME,
    table=TABLE,
    keys=(),
    recorded_annotations=(ATTACHMENTS,),
    requesting=(ATTACHMENTS,),
    triggers=(NETWORKS,),
    whole_pod=True,
    translate=translate,
)
