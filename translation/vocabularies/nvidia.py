"""NVIDIA device plugin: nvidia.com/gpu, nvidia.com/gpu.shared and nvidia.com/mig-<profile>.

AWS's plugin for virtual GPUs gives the same replicas under a name of its own: it makes the GPU visible,
and limits nothing.

Source: NVIDIA/k8s-device-plugin, internal/rm and api/config/v1; NVIDIA/mig-parted for profiles;
awslabs/aws-virtual-gpu-device-plugin 1d59189, pkg/gpu/nvidia/server.go, Allocate.
Without renaming, `nvidia.com/gpu` means a whole GPU or a replica depending on the node, which is not
known at admission: it is read as whole GPUs.
Not translated: `nvidia.com/mig-<profile>.shared`, because no driver publishes such replicas.
"""

import re
from collections.abc import Iterator
from typing import Final

from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, warning
from findings.text import quote_text
from translation.model.amounts import whole_amount
from translation.model.intents import (
    DeviceFilter,
    DeviceKind,
    Intent,
    LegacyContainer,
    LegacyPod,
    Translation,
    Vocabulary,
)
from translation.model.keys import (
    KeyOutcome,
    Place,
    Table,
    limit,
    names,
    node_label,
    prefixes,
    variable,
)

GPU: Final = "nvidia.com/gpu"
SHARED: Final = "nvidia.com/gpu.shared"
VIRTUAL: Final = "k8s.amazonaws.com/vgpu"
"""The name of AWS's plugin for replicas of GPUs."""
REPLICAS: Final = (SHARED, VIRTUAL)
MIG_PREFIX: Final = "nvidia.com/mig-"
SHARED_SUFFIX: Final = ".shared"
VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
PLUGIN_VARIABLES: Final = ("NVIDIA_GDRCOPY", "NVIDIA_GDS", "NVIDIA_MOFED")
"""Variables that request further device nodes from the device plugin."""
DISCOVERY_PREFIX: Final = "nvidia.com/"
"""The prefix of node labels that GPU feature discovery sets."""
PRODUCT: Final = "nvidia.com/gpu.product"
SHARED_PRODUCT: Final = "-SHARED"
"""The suffix of the product name on nodes whose device plugin shares GPUs."""
MIG_PRODUCT: Final = "-MIG-"
"""The text before a profile in the product name on nodes whose device plugin calls MIG devices GPUs."""
SHARING_STRATEGY: Final = "nvidia.com/gpu.sharing-strategy"
"""The node label that says how a device plugin shares GPUs: `none`, `time-slicing` or `mps`."""
REPLICAS_LABEL: Final = ".replicas"
"""The end of the node label with the number of times that a device plugin offers each device of a name."""
GKE_PARTITION: Final = "cloud.google.com/gke-gpu-partition-size"
GKE_STRATEGY: Final = "cloud.google.com/gke-gpu-sharing-strategy"
GKE_CLIENTS: Final = "cloud.google.com/gke-max-shared-clients-per-gpu"
NODE_LABELS: Final = frozenset({GKE_PARTITION, GKE_STRATEGY, GKE_CLIENTS})
"""Labels of GKE's nodes that change what `nvidia.com/gpu` means there."""

TABLE: Final[Table] = (
    limit(
        GPU,
        "devices",
        KeyOutcome.COUNT,
        "N devices of class `gpu.nvidia.com`. `0` requests nothing. Not translated where a "
        "DeviceClass maps the name: Kubernetes allocates it natively",
    ),
    limit(
        SHARED,
        "replicas",
        KeyOutcome.CAPACITY,
        "one device with capacity `shares: 1`, if the driver publishes shares; else rejected. Two "
        "replicas give no larger share than one, so N above 1 counts as one, with a warning",
    ),
    limit(
        VIRTUAL,
        "replicas",
        KeyOutcome.CAPACITY,
        "as `nvidia.com/gpu.shared`: the plugin limits neither memory nor compute, however many "
        "virtual GPUs a container has. Its MPS server is no longer needed",
    ),
    limit(
        f"{MIG_PREFIX}*",
        "devices",
        KeyOutcome.COUNT,
        "N devices of class `mig.nvidia.com` whose `profile` is the name; `.me`, `.me.all` and "
        "`.gfx` at its end mean `+me`, `+me.all` and `+gfx`. An unknown name is rejected",
    ),
    limit(
        f"{MIG_PREFIX}*{SHARED_SUFFIX}",
        "replicas",
        KeyOutcome.REFUSED,
        "no driver publishes replicas of a MIG device",
    ),
    variable(
        VISIBLE_DEVICES,
        KeyOutcome.WARNED,
        "a value in the manifest may expose devices that are not in the claim",
    ),
    *(
        variable(
            name, KeyOutcome.WARNED, "a claim does not provide the device nodes that it requests"
        )
        for name in PLUGIN_VARIABLES
    ),
    node_label(f"{DISCOVERY_PREFIX}*", KeyOutcome.KEPT, "GPU feature discovery must keep running"),
    node_label(
        f"{DISCOVERY_PREFIX}*",
        KeyOutcome.WARNED,
        "it is of nodes where `nvidia.com/gpu` is a part of a GPU; the claim gets a whole one, and a node that shares "
        "none any more loses the value; a required node affinity counts as well",
        case=f"value ends in `{SHARED_PRODUCT}`",
    ),
    *(
        node_label(
            name,
            KeyOutcome.WARNED,
            "`nvidia.com/gpu` is a MIG device on such nodes, and the claim gets a whole GPU",
            case=case,
        )
        for name, case in (
            (f"{DISCOVERY_PREFIX}*", f"a product with `{MIG_PRODUCT}`"),
            (GKE_PARTITION, ""),
        )
    ),
    *(
        node_label(
            name,
            KeyOutcome.WARNED,
            "`nvidia.com/gpu` is a part of a GPU on such nodes, and the claim gets a whole one",
        )
        for name in (SHARING_STRATEGY, GKE_STRATEGY, GKE_CLIENTS)
    ),
)

_MIG_RESOURCE = re.compile(r"[1-9]\d?g\.[1-9]\d{0,3}gb(\.me\.all|\.me|\.gfx|-me)?", re.ASCII)
"""The part after `mig-`. A "+" is not valid in a resource name and becomes "."; "-me" stays."""
_MISSPELT_MIG = re.compile(
    r"([1-9]\d?)g?[._-]?([1-9]\d{0,3})(?:gib|gb|gi|g)?(\.me\.all|\.me|\.gfx|-me)?",
    re.ASCII | re.IGNORECASE,
)
"""Ways in which people write a profile: `3g.20g`, `3g-20gb`, `3g20gb`."""


def translate(pod: LegacyPod) -> Translation:
    """Translate the whole GPUs, replicas and MIG devices that each container requests."""
    intents: list[Intent] = []
    findings: list[Finding] = []
    for container in pod.containers:
        for key in sorted(container.limits):
            intent = _intent(container, key)
            if isinstance(intent, Finding):
                findings.append(intent)
            elif intent is not None:
                intents.append(intent)
                findings.extend(_check_replicas(container, key))
    return Translation(intents=tuple(intents), findings=tuple(findings))


def is_replica_name(resource: str) -> bool:
    """Return True for a resource name of replicas: devices that a plugin offers several times, under another name.

    >>> is_replica_name("nvidia.com/gpu.shared"), is_replica_name("nvidia.com/mig-1g.5gb.shared")
    (True, True)
    >>> is_replica_name("nvidia.com/mig-1g.5gb"), is_replica_name("koordinator.sh/gpu.shared")
    (False, False)
    """
    is_mig = resource.startswith(MIG_PREFIX) and resource.endswith(SHARED_SUFFIX)
    return is_mig or resource in REPLICAS


def keep_setting(*names: str) -> str:
    """Return the setting that leaves resource names of replicas with their device plugin.

    >>> keep_setting("nvidia.com/gpu.shared")
    'translation.keep: [nvidia.com/gpu.shared]'
    """
    return f"translation.keep: [{', '.join(names)}]"


def mig_profile(resource: str) -> str | None:
    """Return the MIG profile in a resource name; None without a valid one.

    >>> mig_profile("nvidia.com/mig-1g.10gb.me"), mig_profile("nvidia.com/mig-1g.24gb-me")
    ('1g.10gb+me', '1g.24gb-me')
    """
    text = resource.removeprefix(MIG_PREFIX)
    match = _MIG_RESOURCE.fullmatch(text)
    if match is None:
        return None
    suffix = match.group(1) or ""
    return text.removesuffix(suffix) + (f"+{suffix[1:]}" if suffix.startswith(".") else suffix)


def _intent(container: LegacyContainer, key: str) -> Intent | Finding | None:
    count = whole_amount(container, key)
    if count is None or isinstance(count, Finding):
        return count
    path = container.limit_path(key)
    if key in REPLICAS:
        # Two replicas may be on one GPU and give no larger share than one.
        return _new_intent(container, DeviceKind.GPU, 1, path, replica=True) if count else None
    if key == GPU:
        return (
            _new_intent(container, DeviceKind.GPU, count, path, exclusive=True) if count else None
        )
    profile = mig_profile(key)
    if profile is None:
        return _unknown_profile(key, path)
    if count == 0:
        return None
    return _new_intent(
        container,
        DeviceKind.MIG,
        count,
        path,
        exclusive=True,
        device_filter=DeviceFilter(mig_profile=profile),
    )


def _new_intent(
    container: LegacyContainer,
    kind: DeviceKind,
    count: int,
    path: FieldPath,
    *,
    exclusive: bool = False,
    replica: bool = False,
    device_filter: DeviceFilter | None = None,
) -> Intent:
    return Intent(
        container=container.name,
        kind=kind,
        count=count,
        exclusive=exclusive,
        replica=replica,
        filter=device_filter or DeviceFilter(),
        paths={"count": path},
    )


def _unknown_profile(key: str, path: FieldPath) -> Finding:
    if key.endswith(SHARED_SUFFIX) and mig_profile(key.removesuffix(SHARED_SUFFIX)):
        return error(
            Code.CANNOT_EXPRESS,
            path,
            "no driver publishes time-sliced replicas of a MIG device",
            f"request the whole MIG device, {key.removesuffix(SHARED_SUFFIX)}; or leave the key with its device plugin "
            f"({keep_setting(key)})",
        )
    text = key.removeprefix(MIG_PREFIX)
    misspelt = _MISSPELT_MIG.fullmatch(text)
    fix = "write a name such as nvidia.com/mig-1g.10gb or nvidia.com/mig-1g.10gb.me"
    name = ""
    if misspelt is not None:
        slices, memory, suffix = misspelt.groups(default="")
        name = f"{MIG_PREFIX}{slices}g.{memory}gb{suffix.lower()}"
        fix = f"write {name}"
    message = f"{quote_text(text)} is not a MIG profile"
    return error(Code.UNKNOWN_MIG_PROFILE, path, message, fix).renamed_to(name)


def _check_replicas(container: LegacyContainer, key: str) -> Iterator[Finding]:
    count = whole_amount(container, key)
    if key in REPLICAS and isinstance(count, int) and count > 1:
        yield warning(
            Code.CLAMPED,
            container.limit_path(key),
            f"{count} replicas give no larger share than one; the claim requests one",
        )


VOCABULARY: Final = Vocabulary(
    name="nvidia",
    table=TABLE,
    keys=names(TABLE, Place.LIMIT),
    key_prefixes=prefixes(TABLE, Place.LIMIT),
    translate=translate,
)
