"""`preflight.sh` of a plan: a check of ours names the pods without a controller that stop a wave, planned or not."""

from pathlib import Path

import pytest

from testing.documents import namespace
from testing.migration import SHARE, hami_node, workload
from testing.plan import checks_before, planned, script


@pytest.mark.parametrize("is_planned", [True, False], ids=["planned", "of later"])
@pytest.mark.parametrize(
    ("restart", "state", "message"),
    [
        ("OnFailure", "note", "switch.sh waits for it"),
        ("Never", "note", "switch.sh waits for it"),
        ("Always", "failed", "nothing creates team/once-0 again, and kubectl drain stops at"),
    ],
)
def test_a_check_tells_which_bare_pods_stop_a_wave_and_the_trial_of_a_drain_none(
    tmp_path: Path, restart: str, state: str, message: str, *, is_planned: bool
) -> None:
    """A new pod that runs to its end stopped preflight.sh with the words of kubectl, and switch.sh waits for it."""
    nodes = [hami_node("hami-0"), hami_node("hami-1"), namespace("team")]
    (_, pod) = workload("once", SHARE, ["hami-0"], restartPolicy=restart)
    del pod["metadata"]["ownerReferences"]

    plan = planned(tmp_path, [*nodes, pod] if is_planned else nodes, "--wave-nodes", 1)

    number = next(
        wave["wave"]
        for wave in plan["waves"]
        if "hami-0" in [node["name"] for node in wave["nodes"]]
    )
    text = script(tmp_path, "preflight", number)
    assert (
        "kubectl drain hami-0 --dry-run=server --ignore-daemonsets --delete-emptydir-data --force"
        in text
    )
    assert text.index("--before") < text.index("kubectl drain")
    checks = checks_before(tmp_path, [*nodes, pod], number)
    assert [state] == [check["state"] for check in checks if message in check["message"]]
