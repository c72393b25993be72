"""The theme of devices in use."""

from typing import Final

from testing.oracle.draft import GPU, Draft, Json, claim


def allocated(draft: Draft) -> None:
    """Claims that hold devices already."""
    chance = draft.pick((0.15, 0.3, 0.5))
    for slice_ in list(draft.slices()):
        for device in slice_["spec"].get("devices", ()):
            if draft.maybe(chance):
                for _ in range(2 if device.get("allowMultipleAllocations") else 1):
                    _hold(draft, slice_["spec"], device)
    if draft.maybe(0.1):
        result = {"driver": GPU, "pool": "gone", "device": "d0", "request": "r0"}
        draft.allocated.append(_consumer(draft, result))


def _hold(draft: Draft, spec: Json, device: Json) -> None:
    result: Json = {
        "request": "r0",
        "driver": spec["driver"],
        "pool": spec["pool"]["name"],
        "device": device["name"],
    }
    if draft.maybe(0.07):
        result["adminAccess"] = True
    if draft.maybe(0.85 if device.get("allowMultipleAllocations") else 0.03):
        number = len(draft.allocated)
        result["shareID"] = f"00000000-0000-4000-8000-{number:012d}"
        capacity = {
            key: draft.pick(_CONSUMED[key]) for key in device["capacity"] if key in _CONSUMED
        }
        if capacity and draft.maybe(0.95):
            result["consumedCapacity"] = capacity
    draft.allocated.append(_consumer(draft, result))


_CONSUMED: Final = {
    "memory": ("4Gi", "10Gi", "20Gi", "0"),
    "cores": ("10", "20", "50"),
    "share": ("250m", "1", "500m"),
}


def _consumer(draft: Draft, result: Json) -> Json:
    consumer = claim(f"holder-{len(draft.allocated)}", {"requests": []})
    return consumer | {"status": {"allocation": {"devices": {"results": [result]}}}}
