"""The nodes of a device plugin and a DRA driver that both hand out the devices. Reads files, and prints notes."""

from pathlib import Path

from answers.model.cluster_state import ClusterState
from answers.model.inputs import ClusterObjects
from answers.model.profiles import profiles_in_force
from cli.output.standard_error import print_line
from cli.reading.options import translation_options
from cli.reading.settings import SharedSettings, read_settings
from findings.text import join_names
from migration.assessment.assumed import kept_device_keys, whole_device_keys
from migration.assessment.doubled import DOUBLED, DoubledNodes, find_doubled
from migration.cluster.node_devices import koordinator_devices, read_nodes
from process.profiles.profile_files import load_profiles
from translation.cluster.snapshot import vocabularies_in_force


def find_doubled_nodes(
    state: ClusterState,
    cluster_objects: ClusterObjects,
    profile_directory: Path | None,
    settings: str | None,
) -> DoubledNodes:
    """Return the nodes with devices that a device plugin and a DRA driver both hand out.

    Those that are cordoned get a note only, unless pods with devices tolerate it: a plan goes on without them.

    Args:
        state: The state of the cluster.
        cluster_objects: Its objects, profiles among them.
        profile_directory: The directory of profile files; None without one.
        settings: The settings file; None without one.

    Raises:
        ConfigError: A file cannot be read, or makes no sense.
    """
    files = load_profiles(profile_directory)
    profiles = profiles_in_force(files, cluster_objects.objects).profiles
    shared_settings = SharedSettings() if settings is None else read_settings(settings)
    options = translation_options((), profiles, shared_settings)
    devices = read_nodes(
        *(state.nodes, state.slices, koordinator_devices(cluster_objects.objects)),
        whole_device_keys(profiles.values(), kept_device_keys(profiles, options)),
        profiles.values(),
        renamed_keys=options.renamed_keys,
    )
    doubled = find_doubled(devices, state, vocabularies_in_force(options, profiles))
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
