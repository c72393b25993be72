"""The scheduler with settings that no repetition makes right: exit status 2, and all faults are named.

Only the program runs. It reads its settings before it calls the API server or a sidecar, which are not there.
"""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from e2e.access import Object
from e2e.binaries import scheduler
from e2e.credentials import kubeconfig
from kube.names import SCHEDULER_NAME

PLUGIN: Final = "Drawbridge"
TIMEOUT_S: Final = 60.0
NOBODY: Final = "http://127.0.0.1:1"
"""An address without an API server."""


class Case(NamedTuple):
    name: str
    args: Mapping[str, Any]
    status: int
    messages: tuple[str, ...]
    plugin: str = PLUGIN


CASES: Final = (
    Case(
        "three faults at once",
        {"socket": "", "callTimeout": "0s", "exitAfter": "-1s"},
        2,
        (
            "socket is empty, give the path of the sidecar's unix socket; callTimeout is 0s, ",
            "; exitAfter is -1s, give a duration above 0s",
        ),
    ),
    Case("a misspelt field", {"sockets": "/run/s"}, 2, ('unknown field "sockets"',)),
    Case("a number for a duration", {"heartbeat": 2}, 2, ("cannot unmarshal number",)),
    Case(
        "a plugin that there is not is no fault of these settings",
        {},
        1,
        ('PreFilterPlugin "Drawbrige" does not exist',),
        plugin="Drawbrige",
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_wrong_settings_end_the_scheduler(tmp_path: Path, case: Case) -> None:
    configuration = tmp_path / "scheduler.json"
    configuration.write_text(json.dumps(configuration_of(tmp_path, case)))
    command = (str(scheduler()), f"--config={configuration}", "--secure-port=0")

    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)

    assert ended.returncode == case.status, ended.stderr
    log = ended.stderr.replace('\\"', '"')
    assert [message for message in case.messages if message not in log] == []
    assert "goroutine" not in log


def configuration_of(folder: Path, case: Case) -> Object:
    access = folder / "kubeconfig"
    access.write_text(kubeconfig({"server": NOBODY}, {}))
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(access)},
        "profiles": [
            {
                "schedulerName": SCHEDULER_NAME,
                "plugins": {"multiPoint": {"enabled": [{"name": case.plugin}]}},
                "pluginConfig": [{"name": PLUGIN, "args": dict(case.args)}],
            }
        ],
    }
