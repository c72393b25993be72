"""Pods in the host's network: their NICs are left to the device plugin.

A DRA driver for NICs moves an interface into the network namespace of the pod. A pod with
`hostNetwork: true` has none of its own, and dranet then fails its sandbox for ever. The device plugin
gives such a pod device files only.

Source: kubernetes-sigs/dranet f258477, pkg/driver/nri_hooks.go; k8snetworkplumbingwg/dra-driver-sriov
cd9404f, pkg/nri/nri.go, which skips the interface and tells nobody.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, warning
from findings.text import printable
from kube.api.core import Pod
from kube.quantity import ZERO
from translation.model.intents import Vocabulary
from translation.reading import arbiter
from translation.reading.legacy_pod import containers
from translation.vocabularies.koordinator.keys import RDMA

_FIX: Final = "remove hostNetwork to use a claim, or keep the device plugin running"


def check_host_network(pod: Pod, vocabularies: Mapping[str, Vocabulary]) -> Iterator[Finding]:
    """Yield a finding for each NIC that a pod in the host's network requests.

    A warning where the key is left as it is. Koordinator's key is an error: its devices are the
    pod's, so they cannot be left out of the translation.

    Args:
        vocabularies: Extended by the resource names in the profiles in force.
    """
    if not pod.spec.host_network:
        return
    nics = [vocabularies[name] for name in arbiter.NICS if name in vocabularies]
    for path, container in containers(pod):
        for key, amount in {**container.requests, **container.limits}.items():
            section = "limits" if key in container.limits else "requests"
            place = path.child("resources", section).key(key)
            if not amount > ZERO:
                continue
            if key == RDMA and any(vocabulary.handles(key) for vocabulary in vocabularies.values()):
                yield _rejected_finding(place)
            elif any(_is_device(vocabulary, key) for vocabulary in nics):
                yield _untranslated_finding(place, key)


def _is_device(vocabulary: Vocabulary, key: str) -> bool:
    """Return True if a key requests devices; a companion, such as a number of addresses, does not."""
    suffix = vocabulary.companion_suffix
    return vocabulary.handles(key) and not (suffix is not None and key.endswith(suffix))


def _untranslated_finding(path: FieldPath, key: str) -> Finding:
    return warning(
        Code.HOST_NETWORK_NIC,
        path,
        f"{printable(key)} is not translated: a driver moves the NIC into the network of the pod, and "
        "with hostNetwork it has none of its own",
        _FIX,
    )


def _rejected_finding(path: FieldPath) -> Finding:
    return error(
        Code.HOST_NETWORK_NIC,
        path,
        "a driver moves the NIC into the network of the pod, and with hostNetwork it has none of its "
        "own: the pod would never start",
        "remove hostNetwork, or remove the key: the pod sees all NICs of its node anyway",
    )
