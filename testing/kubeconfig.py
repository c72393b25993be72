"""A kubeconfig for commands that read a server of a test."""

import json
from pathlib import Path

from testing.fake_api_server import FakeApiServer


def kubeconfig_of(server: FakeApiServer, folder: Path) -> Path:
    """Write a kubeconfig with the contexts `here`, and, as the current one, `elsewhere`."""
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "elsewhere",
                "contexts": [
                    {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "team"}},
                    {"name": "elsewhere", "context": {"cluster": "none", "user": "u"}},
                ],
                "clusters": [
                    {"name": "c", "cluster": {"server": server.url}},
                    {"name": "none", "cluster": {"server": "http://127.0.0.1:1"}},
                ],
                "users": [{"name": "u", "user": {}}],
            }
        )
    )
    return kubeconfig
