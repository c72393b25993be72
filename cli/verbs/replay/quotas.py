"""The quotas of a replay, read from the files of `--quota`."""

import sys
from collections.abc import Sequence
from typing import Final

import click

from answers.manifests.replay_quotas import GivenQuotas
from answers.model.cluster_state import build_state
from answers.model.findings import DEFAULT_NAMESPACE
from answers.model.kinds import Kinds
from answers.model.objects import decode_objects
from cli.output.standard_error import print_line
from kube.api import device_quota
from kube.api.core import Namespace, ResourceQuota
from kube.api.device_quota import DeviceQuota
from kube.manifests.reader import read_paths

_KINDS: Final[Kinds] = {
    (device_quota.API_VERSION, device_quota.KIND): DeviceQuota,
    ("v1", "ResourceQuota"): ResourceQuota,
    ("v1", "Namespace"): Namespace,
}


def read_quotas(paths: Sequence[str]) -> GivenQuotas | None:
    """Return the quotas of files, with the namespaces in them; None without files.

    Wrong values end the program, each on a line.

    Raises:
        click.UsageError: The files have no quota.
        ObjectFileError: A file cannot be read.
    """
    if not paths:
        return None
    views, faults = decode_objects(read_paths(paths), _KINDS, DEFAULT_NAMESPACE)
    for fault in faults:
        print_line(fault.line())
    if faults:
        sys.exit(2)
    state = build_state(views)
    if not (state.quotas or state.resource_quotas):
        raise click.UsageError(f"no DeviceQuota and no ResourceQuota in {', '.join(paths)}")
    return GivenQuotas(
        device_quotas=state.quotas,
        resource_quotas=state.resource_quotas,
        namespaces=state.namespaces,
    )
