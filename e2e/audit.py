"""The API server's audit log about claims, read by code that has nothing of ours."""

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from e2e.cluster import Cluster


def log_length(cluster: Cluster) -> int:
    """Return the length of the log, in bytes."""
    log = cluster.audit_log
    return log.stat().st_size if log.exists() else 0


def stored_claims(cluster: Cluster, offset: int) -> list[dict[str, Any]]:
    """Return the claims as they were stored since then, in order of their versions."""
    return [claim for _, claim in dated_claims(cluster, offset)]


def dated_claims(cluster: Cluster, offset: int) -> list[tuple[datetime, dict[str, Any]]]:
    """Return the times of stored claims since then, with the claims, in order of their versions."""
    with cluster.audit_log.open("rb") as file:
        file.seek(offset)
        events = [event for line in file if (event := _event(line)) is not None]
    stored = [
        (datetime.fromisoformat(event["stageTimestamp"]), event["responseObject"])
        for event in events
        if event.get("responseStatus", {}).get("code") in {200, 201}
        and event.get("responseObject", {}).get("kind") == "ResourceClaim"
    ]
    return sorted(stored, key=lambda entry: int(entry[1]["metadata"]["resourceVersion"]))


def _event(line: bytes) -> dict[str, Any] | None:
    """Return an event; None of a part of one, at either end or if an API server was killed."""
    is_whole = line.startswith(b"{") and line.endswith(b"}\n")
    try:
        return dict(json.loads(line)) if is_whole else None
    except json.JSONDecodeError:
        return None


def conflicts(claims: Iterable[dict[str, Any]]) -> list[tuple[str, str]]:
    """Replay writes of claims; return device and claim of each that was allocated while in use."""
    users: dict[tuple[str, str, str], str] = {}
    held: dict[str, list[tuple[str, str, str]]] = {}
    doubled = []
    for claim in claims:
        uid = claim["metadata"]["uid"]
        for device in held.pop(uid, []):
            users.pop(device, None)
        allocation = claim.get("status", {}).get("allocation") or {}
        devices = [
            (result["driver"], result["pool"], result["device"])
            for result in allocation.get("devices", {}).get("results", [])
        ]
        for device in devices:
            if users.setdefault(device, uid) != uid:
                doubled.append((device[1], uid))
        held[uid] = devices
    return doubled


def double_allocation() -> list[dict[str, Any]]:
    """Return the writes of three claims for one device; the second one got it too early."""
    result = {"driver": "d", "pool": "full", "device": "gpu-0"}
    status = {"allocation": {"devices": {"results": [result]}}}
    return [
        {"metadata": {"uid": uid}, "status": status if has_device else {}}
        for uid, has_device in (("a", True), ("a", False), ("b", True), ("c", True))
    ]
