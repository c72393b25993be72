"""Pods as they were translated and as they would be without us, for stories that compare both."""

import copy
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from e2e.access import Access, Object, stream
from e2e.objects import pod
from kube.names import REQUEST_ANNOTATION, SIGNATURE_ANNOTATION, TRANSLATE_LABEL
from kube.quantity import Quantity

LEGACY: Final = "nvidia.com/"
"""The beginning of every resource name of the vocabularies of GPUs."""

_OF_ONE_OBJECT: Final = frozenset(
    {
        "creationTimestamp",
        "finalizers",
        "generation",
        "managedFields",
        "name",
        "namespace",
        "resourceVersion",
        "uid",
    }
)
_LABELS_OF_ONE_OWNER: Final = re.compile(r"(batch\.kubernetes\.io/)?(controller-uid|job-name)")
_POD_CLAIM: Final = "resource.kubernetes.io/pod-claim-name"
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


def opt_out(cluster: Access, namespace: str) -> None:
    """Label a namespace out of translation, and return when the API server knows it.

    It matches webhooks by what its own cache has of the namespace, which comes after the write.
    """
    cluster.kubectl("label", "namespace", namespace, f"{TRANSLATE_LABEL}=false")
    words = ("create", "--dry-run=server", "-n", namespace, "-f", "-", "-o", "json")
    document = stream(pod("opted-out", limits={f"{LEGACY}gpu": 1, f"{LEGACY}gpumem": 100}))

    def is_left_alone() -> bool:
        output = cluster.kubectl(*words, input=document, check=False)
        return output.returncode == 0 and bool(legacy_keys(json.loads(output.stdout)))

    cluster.wait_until(is_left_alone, f"pods of {namespace} are left alone")


class Allocated(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One device that a container got.

    Attributes:
        consumed: The amount of each capacity, as the API server writes it; empty for a whole device.
    """

    driver: str
    pool: str
    device: str
    consumed: tuple[tuple[str, str], ...] = ()

    @property
    def amounts(self) -> dict[str, Quantity]:
        """The same, fit for comparison: 1000Mi may come back as 1048576k."""
        return {name: Quantity(amount) for name, amount in self.consumed}


def devices(pod: Object, claims: Iterable[Object]) -> dict[str, list[Allocated]]:
    """Container's name to the devices that its requests of the pod's claims were allocated.

    Args:
        pod: The pod as the API server gives it.
        claims: All the claims; see `allocated`.
    """
    claim_ = allocated(pod, claims)
    return {
        container["name"]: sorted(
            device
            for use in container.get("resources", {}).get("claims", ())
            for device in _results(claim_[use["name"]], use.get("request"))
        )
        for container in containers(pod)
    }


def allocated(pod: Object, claims: Iterable[Object]) -> dict[str, Object]:
    """Return the claims of a pod by their names in the pod.

    Args:
        pod: The pod as the API server gives it.
        claims: Those of other pods are ignored, and so are those without an allocation: of a pod
            that has ended, kube-controller-manager may make and delete several more.
    """
    return {
        claim["metadata"]["annotations"][_POD_CLAIM]: claim
        for claim in claims
        if is_owned(claim, pod)
        and "allocation" in claim.get("status", {})
        # The scheduler's own claim, for extended resources, is not one that the pod names.
        and _POD_CLAIM in claim["metadata"].get("annotations", {})
    }


def is_owned(claim: Object, pod: Object) -> bool:
    """Return True if a claim was made of a template for a pod."""
    owners = claim["metadata"].get("ownerReferences", ())
    return any(owner["uid"] == pod["metadata"]["uid"] for owner in owners)


def containers(pod: Object) -> list[Object]:
    """All containers, as they start."""
    return [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]


def legacy_keys(pod: Object) -> set[str]:
    """The resource names of the two vocabularies that a pod still carries."""
    return {
        key
        for container in containers(pod)
        for amounts in ("limits", "requests")
        for key in container.get("resources", {}).get(amounts, {})
        if key.startswith(LEGACY)
    }


def untranslated_rest(pod: Object) -> Object:
    """A pod without anything that a translation takes away or brings, and without its identity.

    It is the same for a translated pod and for its twin from a namespace that opted out.
    """
    rest = copy.deepcopy({"metadata": pod["metadata"], "spec": pod["spec"]})
    metadata, spec = rest["metadata"], rest["spec"]
    for name in _OF_ONE_OBJECT:
        metadata.pop(name, None)
    for owner in metadata.get("ownerReferences", ()):
        owner.pop("uid")
        owner.pop("name")  # Of a CronJob's Job it holds a time.
    labels = metadata.get("labels", {})
    metadata["labels"] = {k: v for k, v in labels.items() if not _LABELS_OF_ONE_OWNER.match(k)}
    annotations = metadata.get("annotations", {})
    ours = {REQUEST_ANNOTATION, SIGNATURE_ANNOTATION, _LAST_APPLIED}
    metadata["annotations"] = {k: v for k, v in annotations.items() if k not in ours}
    for name in ("nodeName", "resourceClaims"):
        spec.pop(name, None)
    for container in containers(rest):
        _without_devices(container)
    return _with_token_volumes_alike(rest)


def _without_devices(container: Object) -> None:
    resources = container.get("resources", {})
    resources.pop("claims", None)
    for amounts in ("limits", "requests"):
        remaining = {
            k: v for k, v in resources.pop(amounts, {}).items() if not k.startswith(LEGACY)
        }
        if remaining:
            resources[amounts] = remaining


def _with_token_volumes_alike(rest: Object) -> Object:
    text = msgspec.json.encode(rest).decode()
    alike: Object = msgspec.json.decode(re.sub(r"kube-api-access-[a-z0-9]{5}", "token", text))
    return alike


def _results(claim: Mapping[str, Any], request: str | None) -> Iterator[Allocated]:
    results = claim["status"]["allocation"]["devices"]["results"]
    for result in results:
        # An alternative is named <request>/<alternative>.
        if request is None or result["request"].partition("/")[0] == request:
            yield Allocated(
                driver=result["driver"],
                pool=result["pool"],
                device=result["device"],
                consumed=tuple(sorted(result.get("consumedCapacity", {}).items())),
            )
