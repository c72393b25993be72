"""Multus' NetworkAttachmentDefinition: the part that claims for its networks are made of.

Source: k8snetworkplumbingwg/network-attachment-definition-client,
pkg/apis/k8s.cni.cncf.io/v1/types.go.
"""

from typing import Final

from kube.api.meta import ApiStruct, ObjectMeta

GROUP: Final = "k8s.cni.cncf.io"
VERSION: Final = "v1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "NetworkAttachmentDefinition"
PLURAL: Final = "network-attachment-definitions"
NETWORKS: Final = "k8s.v1.cni.cncf.io/networks"
"""Annotation of a pod with the networks that Multus attaches."""
POD_BANDWIDTHS: Final = ("kubernetes.io/ingress-bandwidth", "kubernetes.io/egress-bandwidth")
"""Annotations of a pod that limit its own network.

Source: k8s.io/kubernetes v1.37.1, pkg/util/bandwidth/utils.go.
"""
RESOURCE_NAME: Final = "k8s.v1.cni.cncf.io/resourceName"
"""Annotation with the resource name of the devices of a network."""


class NetworkAttachmentDefinitionSpec(ApiStruct, frozen=True, kw_only=True):
    """Source: NetworkAttachmentDefinitionSpec; the configuration of CNI is JSON in a string."""

    config: str = ""


class NetworkAttachmentDefinition(ApiStruct, frozen=True, kw_only=True):
    """Source: NetworkAttachmentDefinition."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NetworkAttachmentDefinitionSpec = NetworkAttachmentDefinitionSpec()
