"""The opaque parameters of a request: an MPS server, and the network of a NIC."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from findings.field_path import FieldPath
from findings.finding import Code, Finding, info, warning
from findings.text import printable
from kube.api.resource import DeviceClaimConfiguration, OpaqueDeviceConfiguration
from translation.model.intents import Intent
from translation.profiles.profile import Mps, NetworkConfig, Profile, put_at


def compile_configs(
    name: str, intent: Intent, profile: Profile, findings: list[Finding]
) -> Iterator[tuple[DeviceClaimConfiguration, FieldPath]]:
    """Yield each configuration that the driver needs for a request, and its source.

    Args:
        name: The request's.
        findings: Gets what the configurations mean.
    """
    mps = profile.devices[intent.kind].mps
    if intent.through_mps and mps is not None:
        parameters = msgspec.to_builtins(mps.parameters)
        if mps.threads and intent.cores_percent:
            put_at(parameters, mps.threads, intent.cores_percent)
        if mps.memory and intent.memory is not None:
            put_at(parameters, mps.memory, str(intent.memory))
        opaque = OpaqueDeviceConfiguration(driver=profile.driver, parameters=parameters)
        yield DeviceClaimConfiguration(requests=(name,), opaque=opaque), intent.path("mode")
    yield from _network_config(name, intent, profile, findings)


def _network_config(
    name: str, intent: Intent, profile: Profile, findings: list[Finding]
) -> Iterator[tuple[DeviceClaimConfiguration, FieldPath]]:
    config, network = profile.devices[intent.kind].network, intent.network
    if not isinstance(config, NetworkConfig) or network is None:
        return
    fields: dict[Any, Any] = {
        config.name: network.name,
        config.namespace: network.namespace,
        config.interface: network.interface,
        config.config: network.config,
    }
    parameters = {
        **config.parameters,
        **{field: value for field, value in fields.items() if isinstance(field, str) and value},
    }
    opaque = OpaqueDeviceConfiguration(driver=profile.driver, parameters=parameters)
    path = intent.path("network")
    if isinstance(config.config, str):
        findings.append(
            warning(
                Code.NETWORK_BY_CLAIM,
                path,
                f"the claim attaches network {printable(network.name)} as {printable(network.interface)} "
                f"by {profile.driver}; where Multus runs on the node, it would attach the network, too, "
                "and the pod would not start",
                "run Multus on other nodes, or take the driver of multus out of translation.profiles",
            )
        )
        yield DeviceClaimConfiguration(requests=(name,), opaque=opaque), path
        return
    findings.append(
        info(
            Code.NETWORK_BY_CLAIM,
            path,
            f"the claim names network {printable(network.name)}, which {profile.driver} attaches itself "
            "unless it runs in configurationMode MULTUS; where Multus runs beside it, it would attach "
            "the network once more",
        )
    )
    yield DeviceClaimConfiguration(requests=(name,), opaque=opaque), path


GATE_FIX: Final = (
    "ask an administrator whether it is on; it is turned on in the settings of the driver's chart"
)


def check_feature_gate(intent: Intent, profile: Profile, mps: Mps) -> Iterator[Finding]:
    """Yield a warning if the driver accepts an MPS server only with a feature gate."""
    if isinstance(mps.feature_gate, str):
        excludes = f", which excludes {' and '.join(mps.excludes)}" if mps.excludes else ""
        yield warning(
            Code.REQUIRES_FEATURE_GATE,
            intent.path("mode"),
            f"{profile.driver} accepts MPS only with its feature gate {mps.feature_gate}, "
            f"off by default{excludes}; without it the pod does not start",
            GATE_FIX,
        )
