"""CDI specs of containers: one per claim, with one device per allocated device.

A container that uses one request of a claim is given the devices of that request only. The driver's own
variables are called after the device, whose name is unique on the node:

    DRAWBRIDGE_DEVICE_GPU_0=GPU-7d0c...            its attribute `uuid`, else its name
    DRAWBRIDGE_DEVICE_GPU_0_MEMORY=10737418240     what may be used of each capacity, in its base unit
    DRAWBRIDGE_DEVICE_GPU_0_SHARE=4f5f...          the share id, of a device that is shared
    DRAWBRIDGE_DEVICE_GPU_0_TIME_SLICE=Short       of the claim's or class's configuration
    DRAWBRIDGE_DEVICE_GPU_0_ADMIN=true             access for administration

Source: tags.cncf.io/container-device-interface v1.1.1, specs-go/config.go, and SPEC.md for 0.6.0, which
is the first version with annotations.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from driver.model.inventory import DeviceNode, Mount
from driver.plan.prepare import Preparation, PreparedDevice
from kube.names import GROUP
from kube.quantity import Quantity

CDI_VERSION: Final = "0.6.0"
CLASS: Final = "claim"
CLAIM_ANNOTATION: Final = f"{GROUP}/claim"
BOOT_ANNOTATION: Final = f"{GROUP}/boot"
"""The annotation with the ID of the boot during which the spec was written."""

_NOT_IN_VARIABLES: Final = re.compile(r"[^A-Z0-9]+")

Document = dict[str, Any]


def spec_file_name(driver: str, uid: str) -> str:
    """Return the name of a claim's spec in the folder of specs.

    Args:
        driver: A DNS subdomain.
        uid: The claim's UID, which `names.is_uid` accepts.
    """
    return f"{driver}-{CLASS}_{uid}.json"


def uid_of_spec(driver: str, file_name: str) -> str | None:
    """Return the claim with the spec in a file; None for files of others.

    >>> uid_of_spec("gpu.example", spec_file_name("gpu.example", "1-2"))
    '1-2'
    """
    start, end = spec_file_name(driver, "\0").split("\0")
    if file_name.startswith(start) and file_name.endswith(end):
        return file_name[len(start) : -len(end)]
    return None


def cdi_spec(driver: str, preparation: Preparation, boot_id: str) -> Document:
    """Return the spec of a claim."""
    record = preparation.record
    return {
        "cdiVersion": CDI_VERSION,
        "kind": f"{driver}/{CLASS}",
        "annotations": {
            CLAIM_ANNOTATION: f"{record.namespace}/{record.name}",
            BOOT_ANNOTATION: boot_id,
        },
        "devices": [
            {"name": _device_name(record.uid, number), "containerEdits": _edits(device)}
            for number, device in enumerate(preparation.devices)
        ],
    }


def cdi_names(driver: str, preparation: Preparation, number: int) -> tuple[str, ...]:
    """Return the names of CDI devices for one device of a claim: ours, then the vendor's.

    Args:
        driver: The driver's name.
        preparation: The claim's preparation.
        number: The device's number in the preparation.
    """
    own = f"{driver}/{CLASS}={_device_name(preparation.record.uid, number)}"
    return (own, *preparation.devices[number].device.injection.cdi_devices)


def _device_name(uid: str, number: int) -> str:
    return f"{uid}-{number}"


def _edits(device: PreparedDevice) -> Document:
    injection = device.device.injection
    environment = {**injection.environment, **dict(_variables(device))}
    edits: Document = {"env": [f"{name}={value}" for name, value in environment.items()]}
    if injection.device_nodes:
        edits["deviceNodes"] = [_device_node(node) for node in injection.device_nodes]
    if injection.mounts:
        edits["mounts"] = [_mount(mount) for mount in injection.mounts]
    return edits


def _variables(prepared_device: PreparedDevice) -> Iterator[tuple[str, str]]:
    device, result = prepared_device.device.device, prepared_device.result
    uuid = (device.attributes or {}).get("uuid")
    name = f"DRAWBRIDGE_DEVICE_{_variable(device.name)}"
    yield name, (uuid.string if uuid is not None else None) or device.name
    whole = {key: capacity.value for key, capacity in (device.capacity or {}).items()}
    is_share = result.share_id is not None
    amounts: Mapping[str, Quantity] = (result.consumed_capacity or {}) if is_share else whole
    for capacity, amount in sorted(amounts.items()):
        yield f"{name}_{_variable(capacity.rpartition('/')[2])}", _plain(amount)
    if result.share_id is not None:
        yield f"{name}_SHARE", result.share_id
    if prepared_device.settings.time_slice is not None:
        yield f"{name}_TIME_SLICE", prepared_device.settings.time_slice.value
    if result.admin_access:
        yield f"{name}_ADMIN", "true"


def _variable(text: str) -> str:
    return _NOT_IN_VARIABLES.sub("_", text.upper())


def _plain(amount: Quantity) -> str:
    """Return an amount without suffix, for programs that know no quantities."""
    return str(int(amount)) if amount.is_whole else f"{float(amount):g}"


def _device_node(node: DeviceNode) -> Document:
    fields = {
        "path": node.path,
        "hostPath": node.host_path,
        "type": node.type,
        "major": node.major,
        "minor": node.minor,
        "permissions": node.permissions,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _mount(mount: Mount) -> Document:
    return {
        "hostPath": mount.host_path,
        "containerPath": mount.container_path,
        "options": list(mount.options),
    }
