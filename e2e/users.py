"""Users of one namespace, with the rights that clusters give people: pods only, edit, nothing."""

import http.client
from pathlib import Path
from typing import Final

from e2e.access import Access

PODS_ONLY: Final = "pods-only"
"""Creates, changes and deletes pods, and nothing else: CI tenants, notebooks."""
EDITOR: Final = "editor"
"""Has the ClusterRole `edit`, which in Kubernetes 1.37 contains claims and templates."""
NOBODY: Final = "nobody"
"""Is known to the API server, and may do nothing."""


def add_user(cluster: Access, namespace: str, name: str) -> Path:
    """Create a user of a namespace; returns the kubeconfig.

    Args:
        name: `PODS_ONLY`, `EDITOR` or `NOBODY`.
    """
    here = ("-n", namespace)
    cluster.kubectl("create", "serviceaccount", name, *here)
    role = {PODS_ONLY: f"--role={PODS_ONLY}", EDITOR: "--clusterrole=edit"}.get(name)
    if name == PODS_ONLY:
        verbs = "--verb=get,list,watch,create,update,patch,delete"
        cluster.kubectl("create", "role", PODS_ONLY, verbs, "--resource=pods,pods/status", *here)
    if role is not None:
        account = f"--serviceaccount={namespace}:{name}"
        cluster.kubectl("create", "rolebinding", name, role, account, *here)
        user, pods = (
            f"system:serviceaccount:{namespace}:{name}",
            cluster.kind("pods").path(namespace),
        )
        cluster.wait_until(
            lambda: cluster.request("GET", pods, user=user)[0] == http.client.OK,
            f"the API server knows the rights of {user}",
        )
    return cluster.kubeconfig_for(namespace, name)
