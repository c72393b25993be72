"""A start of the bridge after one that failed: it begins anew, and a failure shows the logs."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from e2e import bridge as bridge_module
from e2e.access import Access
from e2e.bridge import MANIFESTS, Bridge


class FakeChild:
    """A process that runs until it is stopped."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.exit_status: int | None = None

    def stop(self) -> None:
        self.exit_status = 0

    def tail(self, _lines: int) -> str:
        return "no socket"


class FakeCluster:
    """The part of a cluster that a bridge needs to start; no process runs.

    Attributes:
        has_account: True if a token of the bridge's account can be had.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.children: dict[str, FakeChild] = {}
        self.has_account = True

    def kubeconfig_for(self, namespace: str, service_account: str) -> Path:
        assert self.has_account, f"there is no {namespace}/{service_account}"
        path = self.directory / "kubeconfig"
        path.write_text("")
        return path

    def run(self, name: str, _command: Sequence[str], _env: Mapping[str, str]) -> FakeChild:
        self.children[name] = FakeChild(self.directory / f"{name}.log")
        return self.children[name]

    def wait_until(self, condition: Callable[[], object], description: str, **_: Any) -> None:
        assert condition(), f"not: {description}"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    objects = [
        document
        for file in sorted(MANIFESTS.glob("*.yaml"))
        if file.name != "kustomization.yaml"
        for document in yaml.load_all(file.read_text(), Loader=yaml.CSafeLoader)
    ]
    monkeypatch.setattr(bridge_module, "rendered", lambda _cluster, _manifests: objects)
    monkeypatch.setattr(bridge_module, "scheduler", lambda: Path("drawbridge-scheduler"))
    return FakeCluster(tmp_path)


def new_bridge(cluster: FakeCluster) -> Bridge:
    return Bridge(cast("Access", cluster), drivers=())


@pytest.mark.parametrize("is_another", [False, True], ids=["same bridge", "another bridge"])
def test_a_start_without_an_account_names_it_and_may_be_repeated(
    cluster: FakeCluster, is_another: bool
) -> None:
    bridge = new_bridge(cluster)
    cluster.has_account = False
    for _ in range(2):
        with pytest.raises(AssertionError, match="there is no drawbridge-system/"):
            bridge.start()
    cluster.has_account = True

    (new_bridge(cluster) if is_another else bridge).start()

    assert {"sidecar-a", "scheduler-a"} == set(cluster.children)


def test_processes_of_a_bridge_that_came_to_no_end_are_replaced(cluster: FakeCluster) -> None:
    """They serve on ports that the second bridge does not know."""
    new_bridge(cluster).start()
    before = dict(cluster.children)

    new_bridge(cluster).start()

    assert [0, 0] == [child.exit_status for child in before.values()]
    assert [None, None] == [child.exit_status for child in cluster.children.values()]


def test_a_bridge_that_does_not_work_shows_its_logs(cluster: FakeCluster) -> None:
    with pytest.raises(AssertionError, match="a scheduler of") as failure:
        new_bridge(cluster).wait_working("a")

    (note,) = failure.value.__notes__
    assert note == "\n".join(
        f"--- {cluster.directory}/{part}-a.log\nno socket" for part in ("sidecar", "scheduler")
    )
