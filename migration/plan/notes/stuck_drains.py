"""The notes on drains that would not end for pods without devices. Pure."""

from collections.abc import Iterator, Sequence

import msgspec

from migration.cluster.evidence import Evidence
from migration.plan.facts.stuck_drains import running_pods, stuck_drains
from migration.plan.model.plan import Wave
from migration.plan.search.device_map import WaveDetails


def with_stuck_drains(
    waves: Sequence[Wave], details: Sequence[WaveDetails], evidence: Evidence
) -> Iterator[Wave]:
    """Yield waves with a note on each of their drains that would not end.

    Args:
        waves: The waves.
        details: The details of each, with the nodes of pods after it.
        evidence: The pods and budgets of the cluster.
    """
    places: dict[str, str] = {}
    running = running_pods(evidence)
    for wave, own in zip(waves, details, strict=True):
        notes = tuple(
            f"{drain.text}; preflight.sh stops at it"
            for drain in stuck_drains(evidence, running, wave.unplaced_pods, places)
        )
        yield msgspec.structs.replace(wave, notes=(*wave.notes, *notes))
        places = {
            f"Pod/{name.namespace}/{name.name}": node for name, node in own.other_places.items()
        }
