"""The gates of a translation, in their order: the first that applies ends it."""

from collections.abc import Iterable
from typing import Final

from translation.preflight.gates.converted_pods import stop_at_converted_pods
from translation.preflight.gates.device_plugins import stop_at_device_plugins
from translation.preflight.gates.exempt_namespaces import stop_in_exempt_namespaces
from translation.preflight.gates.faulty_keys import stop_at_faulty_keys
from translation.preflight.gates.mirror_pods import stop_at_mirror_pods
from translation.preflight.gates.native_allocation import stop_at_native_allocation
from translation.preflight.gates.no_devices import stop_without_devices
from translation.preflight.gates.opt_in_mode import stop_without_opt_in
from translation.preflight.gates.opt_out_labels import stop_at_opt_out_labels
from translation.preflight.gates.schedulers import stop_without_scheduler
from translation.preflight.gates.unselected_pods import stop_at_unselected_pods
from translation.preflight.model.inputs import Gate, PodInput, Stop

OPT_OUTS: Final[tuple[Gate, ...]] = (
    stop_at_mirror_pods,
    stop_in_exempt_namespaces,
    stop_at_opt_out_labels,
    stop_at_unselected_pods,
    stop_without_opt_in,
    stop_at_converted_pods,
    stop_without_scheduler,
)
"""Reasons to leave a pod as it is, whatever its keys mean."""
GATES: Final[tuple[Gate, ...]] = (
    stop_without_devices,
    *OPT_OUTS,
    stop_at_faulty_keys,
    stop_at_native_allocation,
    stop_at_device_plugins,
)
"""All reasons to end the translation of a pod before its keys are read."""


def first_stop(gates: Iterable[Gate], inputs: PodInput) -> Stop | None:
    """Return the result of the first gate that applies; None for a pod to translate."""
    for gate in gates:
        stop = gate(inputs)
        if stop is not None:
            return stop
    return None
