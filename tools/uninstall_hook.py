"""The hook of the chart that unlocks pods before an uninstall: a Job, and an account for its time."""

from collections import defaultdict
from typing import Any, Final

from controllers.uninstall.unlock import policies_to_delete
from kube.names import NAME, NAMESPACE
from tools.account_policies import uninstall_documents

Document = dict[str, Any]

ACCOUNT: Final = f"{NAME}-uninstall"
_RIGHTS_WEIGHT: Final = "-5"
"""A weight before that of the Job, 0."""


def hook_documents() -> list[Document]:
    """Return the documents of the hook, with placeholders of `tools.chart`."""
    account = {"name": ACCOUNT, "namespace": NAMESPACE}
    rights = "rbac.authorization.k8s.io"
    role: Document = {"apiGroup": rights, "kind": "ClusterRole", "name": ACCOUNT}
    return [
        *(_hook({**document}, _RIGHTS_WEIGHT) for document in uninstall_documents()),
        _document("v1", "ServiceAccount", account, _RIGHTS_WEIGHT),
        _document(f"{rights}/v1", "ClusterRole", {"name": ACCOUNT}, _RIGHTS_WEIGHT, rules=_rules()),
        _document(
            f"{rights}/v1",
            "ClusterRoleBinding",
            {"name": ACCOUNT},
            _RIGHTS_WEIGHT,
            roleRef=role,
            subjects=[{"kind": "ServiceAccount", **account}],
        ),
        _document("batch/v1", "Job", account, "0", spec=_job()),
    ]


def _rules() -> list[Document]:
    names: dict[str, list[str]] = defaultdict(list)
    for resource, name in policies_to_delete():
        names[resource.plural].append(name)
    return [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "patch"]},
        *(
            {
                "apiGroups": ["admissionregistration.k8s.io"],
                "resources": [plural],
                "resourceNames": sorted(names[plural]),
                "verbs": ["delete"],
            }
            for plural in sorted(names)
        ),
    ]


def _job() -> Document:
    container = {
        "name": "uninstall",
        "image": "PH_image",
        "imagePullPolicy": "PH_with image.pullPolicy",
        "command": ["python", "-m", "controllers.uninstall"],
        "resources": "PH_yaml controller.resources",
        "securityContext": {
            "PH_else": "controller.securityContext",
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
            "PH_end": "block",
        },
    }
    pod: Document = {
        "serviceAccountName": ACCOUNT,
        "restartPolicy": "Never",
        "imagePullSecrets": "PH_yaml image.pullSecrets",
        "nodeSelector": "PH_yaml controller.nodeSelector",
        "tolerations": "PH_yaml controller.tolerations",
        "affinity": "PH_yaml controller.affinity",
        "securityContext": {
            "PH_else": "controller.podSecurityContext",
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
            "PH_end": "block",
        },
        "containers": [container],
    }
    labels = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/component": "uninstall"}
    return {"backoffLimit": 2, "template": {"metadata": {"labels": labels}, "spec": pod}}


def _document(
    api_version: str, kind: str, metadata: Document, weight: str, **content: Any
) -> Document:
    labels = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/component": "uninstall"}
    document = {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {**metadata, "labels": labels},
        **content,
    }
    return _hook(document, weight)


def _hook(document: Document, weight: str) -> Document:
    annotations = {
        "helm.sh/hook": "pre-delete",
        "helm.sh/hook-weight": weight,
        # A Job that failed stays, for its logs; its account does not.
        "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded",
    }
    return document | {"metadata": {**document["metadata"], "annotations": annotations}}
