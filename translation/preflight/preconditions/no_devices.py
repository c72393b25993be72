"""Pods that request no devices are not translated."""

from translation.cluster.snapshot import vocabularies_in_force
from translation.preflight.model.inputs import PodInput, Stop
from translation.reading.arbiter import requests_devices


def stop_without_devices(inputs: PodInput) -> Stop | None:
    """Stop at a pod that requests no devices; its networks may have findings all the same."""
    vocabularies = vocabularies_in_force(inputs.options, inputs.snapshot.profiles)
    if requests_devices(inputs.legacy, vocabularies):
        return None
    return Stop(inputs.network_findings)
