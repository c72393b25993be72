"""The nodes of a legacy system and a DRA driver that both hand out the devices. Reads files and a cluster, and prints notes."""

import asyncio
from collections.abc import Collection
from pathlib import Path
from typing import Final

from answers.model.cluster_state import ClusterState
from answers.model.inputs import ClusterObjects
from answers.model.profiles import profiles_in_force
from answers.model.snapshot_kinds import KINDS
from answers.model.unread import UnreadKind, unread_notes
from cli.output.standard_error import print_line, print_notes
from cli.reading.cluster_state import ClusterFlags
from cli.reading.live_snapshot import may_have_group
from cli.reading.options import translation_options
from cli.reading.settings import SharedSettings, read_settings
from findings.text import join_names
from kube.api.meta import decode_document
from kube.client.client import Client
from kube.errors import Forbidden, NotFound
from kube.manifests.source import SourceObject
from migration.assessment.assumed import kept_device_keys, whole_device_keys
from migration.assessment.doubled import (
    DOUBLED,
    DoubledNodes,
    check_doubled,
    find_doubled,
    with_doubled_nics,
)
from migration.cluster.node_devices import koordinator_devices, read_nodes
from process.profiles.profile_files import load_profiles
from translation.cluster.snapshot import vocabularies_in_force

_DEVICE: Final = "Device"


def find_doubled_nodes(
    state: ClusterState,
    cluster_objects: ClusterObjects,
    flags: ClusterFlags,
    profile_directory: Path | None,
    settings: str | None,
) -> DoubledNodes:
    """Return the nodes with devices that a legacy system and a DRA driver both hand out.

    Those that are cordoned get a note only, unless pods with devices tolerate it: a plan goes on without them.

    Args:
        state: The state of the cluster.
        cluster_objects: Its objects, profiles among them; of a live cluster those of Koordinator are read here.
        flags: The flags that name the cluster.
        profile_directory: The directory of profile files; None without one.
        settings: The settings file; None without one.

    Raises:
        ConfigError: A file cannot be read, or makes no sense.
        KubeError: The API server does not answer.
    """
    objects: Collection[object] = cluster_objects.objects
    if cluster_objects.is_live:
        objects = asyncio.run(_read_koordinator(flags))
    files = load_profiles(profile_directory)
    profiles = profiles_in_force(files, cluster_objects.objects).profiles
    shared_settings = SharedSettings() if settings is None else read_settings(settings)
    options = translation_options((), profiles, shared_settings)
    koordinator = koordinator_devices(objects)
    devices = read_nodes(
        *(state.nodes, state.slices, koordinator),
        whole_device_keys(profiles.values(), kept_device_keys(profiles, options)),
        profiles.values(),
        renamed_keys=options.renamed_keys,
    )
    devices = with_doubled_nics(devices, koordinator, state.slices)
    doubled = find_doubled(devices, state, vocabularies_in_force(options, profiles))
    with_nics = [entry for entry in devices if entry.nic_drivers and entry.node in doubled.in_use]
    for blocker in check_doubled(with_nics, state):
        nodes = join_names([f"Node/{name.rpartition('/')[2]}" for name in blocker.objects])
        print_line(f"note: {nodes}: {blocker.message}; {blocker.fix}")
    for node, pods in doubled.tolerating.items():
        print_line(
            f"note: Node/{node} is cordoned, and these pods with devices come there all the same, since they tolerate "
            f"it: {join_names(pods)}; have their controllers select other nodes"
        )
    if doubled.cordoned:
        nodes = join_names([f"Node/{name}" for name in doubled.cordoned])
        print_line(
            f"note: {nodes}: {DOUBLED}; none of today's pods with devices would come there anew while it is cordoned, "
            "but those that run there may have the same one already"
        )
    return doubled


async def _read_koordinator(flags: ClusterFlags) -> list[SourceObject]:
    """Return the Device objects of a live cluster; print a note if these may not be read."""
    resource = KINDS[_DEVICE]
    head = {"apiVersion": f"{resource.group}/{resource.version}", "kind": _DEVICE}
    objects: list[SourceObject] = []
    async with await Client.from_kubeconfig(flags.kubeconfig, flags.context) as client:
        try:
            async for page in client.pages(resource):
                documents = (head | decode_document(raw) for raw in page.items)
                objects += [
                    SourceObject(document=document, source="the cluster", line=0)
                    for document in documents
                ]
        except NotFound:
            return []
        except Forbidden as refusal:
            # A kind that the cluster does not serve is refused as well.
            if await may_have_group(client, resource.group):
                print_notes(unread_notes([UnreadKind(resource.plural, str(refusal))]))
    return objects
