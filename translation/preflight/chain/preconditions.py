"""The preconditions of a translation, in their order: the first that a pod does not meet ends it."""

from collections.abc import Iterable
from typing import Final

from translation.preflight.model.inputs import PodInput, Precondition, Stop
from translation.preflight.preconditions.converted_pods import stop_at_converted_pods
from translation.preflight.preconditions.device_plugins import stop_at_device_plugins
from translation.preflight.preconditions.exempt_namespaces import stop_in_exempt_namespaces
from translation.preflight.preconditions.faulty_keys import stop_at_faulty_keys
from translation.preflight.preconditions.mirror_pods import stop_at_mirror_pods
from translation.preflight.preconditions.native_allocation import stop_at_native_allocation
from translation.preflight.preconditions.no_devices import stop_without_devices
from translation.preflight.preconditions.opt_in_mode import stop_without_opt_in
from translation.preflight.preconditions.opt_out_labels import stop_at_opt_out_labels
from translation.preflight.preconditions.schedulers import stop_without_scheduler
from translation.preflight.preconditions.unselected_pods import stop_at_unselected_pods

OPT_OUTS: Final[tuple[Precondition, ...]] = (
    stop_at_mirror_pods,
    stop_in_exempt_namespaces,
    stop_at_opt_out_labels,
    stop_at_unselected_pods,
    stop_without_opt_in,
    stop_at_converted_pods,
    stop_without_scheduler,
)
"""Reasons to leave a pod as it is, whatever its keys mean."""
PRECONDITIONS: Final[tuple[Precondition, ...]] = (
    stop_without_devices,
    *OPT_OUTS,
    stop_at_faulty_keys,
    stop_at_native_allocation,
    stop_at_device_plugins,
)
"""All reasons to end the translation of a pod before its keys are read."""


def first_stop(preconditions: Iterable[Precondition], inputs: PodInput) -> Stop | None:
    """Return the result of the first precondition that a pod does not meet; None if it meets all."""
    for precondition in preconditions:
        stop = precondition(inputs)
        if stop is not None:
            return stop
    return None
