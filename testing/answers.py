"""Calls of the command with JSON answers, for tests of their common properties."""

from typing import Final

CLUSTER: Final = ("--snapshot", "examples/cluster/cluster.yaml")
MIGRATION: Final = ("--snapshot", "examples/migration/cluster.yaml")
POLICY: Final = (
    *("--snapshot", "examples/compatibility/cluster.yaml"),
    *("-f", "examples/compatibility/policy.yaml"),
)
JSON_CALLS: Final = (
    ("assess", *MIGRATION),
    ("bridge", "status", *CLUSTER),
    ("bridge", "own", "gpu.nvidia.com", *CLUSTER),
    ("check", "-f", "examples/mistakes", *CLUSTER),
    ("check-upgrade", "--kubernetes", "1.38", "-f", "examples/upgrade"),
    ("explain", "wrongUnit"),
    ("fix", "-f", "examples/mistakes", *CLUSTER),
    ("inventory", "--devices", *CLUSTER),
    ("matrix", *POLICY),
    ("matrix", "--as-groups", *POLICY),
    (*("replay", "--snapshot", "examples/replay/recording.jsonl", "--strategy", "stock,BestFit"),),
    (
        *("replay", "--pods", "examples/replay/pods.csv"),
        *("--snapshot", "examples/replay/cluster.yaml"),
    ),
    ("simulate", "-f", "examples/share.yaml", *CLUSTER),
    ("simulate", "-f", "examples/share.yaml", *MIGRATION),
    ("quota", "convert", *MIGRATION),
    (
        *("simulate", "-f", "examples/denied/too-large.yaml"),
        *("--snapshot", "examples/denied/cluster.yaml"),
    ),
    ("test", "-f", "examples/suite/suite.yaml"),
    ("top", "--snapshot", "examples/busy"),
    ("top", "pods", "--snapshot", "examples/busy"),
    ("top", "devices", "--snapshot", "examples/busy"),
    ("translate", "-f", "examples/share.yaml", "-f", "examples/mistakes", *CLUSTER),
    ("verify", *CLUSTER),
    ("why", "pod", "all-four", "-n", "team", "--snapshot", "examples/waiting"),
)
"""The calls from the root of the project, without `-o json`; every command with such an answer is here, but
for `status`, which needs an API server."""
