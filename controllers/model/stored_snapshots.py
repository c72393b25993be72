"""The state of the cluster that translations of stored objects read."""

from clusterstate.autoscalers import ObjectName
from clusterstate.mapping_evaluator import MappingEvaluator
from clusterstate.snapshot_cache import SnapshotCache
from controllers.model.evaluating_parts import EvaluatingParts
from kube.api.urls import CONFIG_MAPS
from translation.cluster.snapshot import ClaimUnawareComponent


def stored_snapshots(parts: EvaluatingParts) -> tuple[SnapshotCache, MappingEvaluator]:
    """Return the state, and the evaluator of too wide mappings; the evaluator's loop has to run."""
    settings, options, profiles = parts.settings, parts.options, parts.profiles
    # What ignores claims is not looked for: no claim depends on it.
    snapshots = SnapshotCache(
        parts.informers,
        parts.files,
        claim_aware=frozenset(ClaimUnawareComponent),
        inventory=ObjectName(
            CONFIG_MAPS, settings.namespace, settings.validation.inventory_config_map
        ),
        features=settings.validation.features(),
        options=options,
    )
    mappings = MappingEvaluator(parts.evaluator, snapshots, options)
    profiles.on_change(snapshots.replace_profiles)
    profiles.on_change(mappings.mark_changed)
    return snapshots, mappings
