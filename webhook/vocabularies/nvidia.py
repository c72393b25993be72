"""NVIDIA device plugin: nvidia.com/gpu, nvidia.com/gpu.shared and nvidia.com/mig-<profile>.

Source: NVIDIA/k8s-device-plugin, internal/rm and api/config/v1; NVIDIA/mig-parted for profiles.
Whether `nvidia.com/gpu` means a whole GPU or a replica depends, without renaming, on the node that
the pod lands on, which nobody knows at admission: it is read as whole GPUs.
Not translated: `nvidia.com/mig-<profile>.shared`, for which no driver publishes a replica.
"""

import re
from collections.abc import Iterator
from typing import Final

from webhook.amounts import whole
from webhook.findings import Code, Finding, error, shown, warning
from webhook.intents import (
    DeviceFilter,
    DeviceKind,
    Intent,
    LegacyContainer,
    LegacyPod,
    Translation,
    Vocabulary,
)
from webhook.keys import Fate, Place, Table, limit, names, node_label, prefixes, variable

GPU: Final = "nvidia.com/gpu"
SHARED: Final = "nvidia.com/gpu.shared"
MIG_PREFIX: Final = "nvidia.com/mig-"
SHARED_SUFFIX: Final = ".shared"
VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
PLUGIN_VARIABLES: Final = ("NVIDIA_GDRCOPY", "NVIDIA_GDS", "NVIDIA_MOFED")
"""Variables by which a container asks the device plugin for more device nodes."""
DISCOVERY_PREFIX: Final = "nvidia.com/"
"""Of node labels that GPU feature discovery sets."""
SHARED_PRODUCT: Final = "-SHARED"
"""End of the product's name on nodes whose device plugin shares GPUs."""

TABLE: Final[Table] = (
    limit(
        GPU,
        "devices",
        Fate.COUNT,
        "N devices of class `gpu.nvidia.com`. `0` asks for nothing. Left as it is where a "
        "DeviceClass maps the name: Kubernetes allocates it natively",
    ),
    limit(
        SHARED,
        "replicas",
        Fate.CAPACITY,
        "one device with capacity `shares: 1`, if the driver publishes shares; else refused. Two "
        "replicas give no bigger share than one, so N above 1 is one, with a warning",
    ),
    limit(
        f"{MIG_PREFIX}*",
        "devices",
        Fate.COUNT,
        "N devices of class `mig.nvidia.com` whose `profile` is the name; `.me`, `.me.all` and "
        "`.gfx` at its end stand for `+me`, `+me.all` and `+gfx`. An unknown name is refused",
    ),
    limit(
        f"{MIG_PREFIX}*{SHARED_SUFFIX}",
        "replicas",
        Fate.REFUSED,
        "no driver publishes replicas of a MIG device",
    ),
    variable(VISIBLE_DEVICES, Fate.WARNED, "a value by hand could open devices beyond the claim"),
    *(
        variable(name, Fate.WARNED, "a claim does not bring the device nodes that it asks for")
        for name in PLUGIN_VARIABLES
    ),
    node_label(f"{DISCOVERY_PREFIX}*", Fate.KEPT, "GPU feature discovery must keep running"),
    node_label(
        f"{DISCOVERY_PREFIX}*",
        Fate.WARNED,
        "nodes of a DRA driver do not carry such a value",
        case=f"value ends in `{SHARED_PRODUCT}`",
    ),
)

_MIG_RESOURCE = re.compile(r"[1-9]\d?g\.[1-9]\d{0,3}gb(\.me\.all|\.me|\.gfx|-me)?", re.ASCII)
"""The part after `mig-`. A "+" cannot stand in a resource name, so it becomes "."; "-me" stays."""


def translate(pod: LegacyPod) -> Translation:
    """Return the whole GPUs, replicas and MIG devices that each container asks for."""
    intents: list[Intent] = []
    findings: list[Finding] = []
    for container in pod.containers:
        for key in sorted(container.limits):
            asked = _intent(container, key)
            if isinstance(asked, Finding):
                findings.append(asked)
            elif asked is not None:
                intents.append(asked)
                findings.extend(_clamped(container, key))
    return Translation(intents=tuple(intents), findings=tuple(findings))


def mig_profile(resource: str) -> str | None:
    """Return the MIG profile that a resource name stands for; None when it names none.

    >>> mig_profile("nvidia.com/mig-1g.10gb.me"), mig_profile("nvidia.com/mig-1g.24gb-me")
    ('1g.10gb+me', '1g.24gb-me')
    """
    text = resource.removeprefix(MIG_PREFIX)
    matched = _MIG_RESOURCE.fullmatch(text)
    if matched is None:
        return None
    suffix = matched.group(1) or ""
    return text.removesuffix(suffix) + (f"+{suffix[1:]}" if suffix.startswith(".") else suffix)


def _intent(container: LegacyContainer, key: str) -> Intent | Finding | None:
    count = whole(container, key)
    if count is None or isinstance(count, Finding):
        return count
    path = container.limit_path(key)
    if key == SHARED:
        if count == 0:
            return error(Code.OUT_OF_RANGE, path, "Invalid value: 0: must be at least 1", "write 1")
        # Two replicas may sit on one GPU and give no bigger share, so one is all there is to have.
        return _wish(container, DeviceKind.GPU, 1, path, replica=True)
    if key == GPU:
        return _wish(container, DeviceKind.GPU, count, path, exclusive=True) if count else None
    profile = mig_profile(key)
    if profile is None:
        return _unknown_profile(key, path)
    if count == 0:
        return None
    only = DeviceFilter(mig_profile=profile)
    return _wish(container, DeviceKind.MIG, count, path, exclusive=True, only=only)


def _wish(
    container: LegacyContainer,
    kind: DeviceKind,
    count: int,
    path: str,
    *,
    exclusive: bool = False,
    replica: bool = False,
    only: DeviceFilter | None = None,
) -> Intent:
    return Intent(
        container=container.name,
        kind=kind,
        count=count,
        exclusive=exclusive,
        replica=replica,
        filter=only or DeviceFilter(),
        paths={"count": path},
    )


def _unknown_profile(key: str, path: str) -> Finding:
    if key.endswith(SHARED_SUFFIX) and mig_profile(key.removesuffix(SHARED_SUFFIX)):
        return error(
            Code.CANNOT_EXPRESS,
            path,
            "no driver publishes time-sliced replicas of a MIG device",
            f"ask for the whole MIG device, {key.removesuffix(SHARED_SUFFIX)}",
        )
    return error(
        Code.UNKNOWN_MIG_PROFILE,
        path,
        f"{shown(key.removeprefix(MIG_PREFIX))} is not a MIG profile",
        "write a name such as nvidia.com/mig-1g.10gb or nvidia.com/mig-1g.10gb.me",
    )


def _clamped(container: LegacyContainer, key: str) -> Iterator[Finding]:
    count = whole(container, key)
    if key == SHARED and isinstance(count, int) and count > 1:
        yield warning(
            Code.CLAMPED,
            container.limit_path(key),
            f"{count} replicas give no bigger share than one; asking for one",
        )


VOCABULARY: Final = Vocabulary(
    name="nvidia",
    table=TABLE,
    keys=names(TABLE, Place.LIMIT),
    key_prefixes=prefixes(TABLE, Place.LIMIT),
    translate=translate,
)
