"""`drawbridge plan`: the sentences of its README on evicted pods at nodes of later waves, and on cordoned nodes."""

from pathlib import Path
from typing import Any, Final

import pytest

from testing.documents import namespace
from testing.migration import GPU, SHARE, hami_node, plugin_node, workload
from testing.plan import planned, script

SENTENCE: Final = (
    "Evicted pods without claims may come to nodes of later waves, and are evicted there again.\n"
)
SENTENCE_ON_CORDONS: Final = (
    "A script cordons nodes of its own wave only: one with pods that end by themselves at its turn, with those of the same\n"
    "training, and the others together, before the first of them is drained. "
)
NATIVE: Final = [plugin_node("gpu-0"), plugin_node("gpu-1"), plugin_node("gpu-2")]


def has_sentence(tmp_path: Path, objects: list[dict[str, Any]], nodes: int) -> bool:
    planned(tmp_path, [*objects, namespace("team")], "--wave-nodes", nodes)
    return SENTENCE in (tmp_path / "plan" / "README.md").read_text()


@pytest.mark.parametrize(("names", "nodes"), [(["gpu-0", "gpu-1"], 1), ([""], 1), (["gpu-0"], 3)])
def test_native_pods_may_come_to_nodes_of_later_waves(
    tmp_path: Path, names: list[str], nodes: int
) -> None:
    """Operators counted on one eviction of each pod."""
    web = workload("web", {GPU: "1"}, names)

    assert (len(names) > 1) is has_sentence(tmp_path, [*NATIVE, *web], nodes)


def test_pods_that_move_to_claims_do_not(tmp_path: Path) -> None:
    """They are restarted in the wave of their node, and have claims from then on."""
    nodes = [hami_node("hami-0"), hami_node("hami-1")]
    web = workload("web", SHARE, ["hami-0"])

    assert not has_sentence(tmp_path, [*nodes, *web], 1)


def test_a_script_cordons_nodes_of_its_own_wave_only(tmp_path: Path) -> None:
    """A reader took the sentence to say that a script cordons nodes of later waves, too."""
    web = workload("web", {GPU: "1"}, ["gpu-0", "gpu-1"])
    job = workload("job", {GPU: "1"}, ["gpu-2"], kind="Job", restartPolicy="Never")

    plan = planned(tmp_path, [*NATIVE, *web, *job, namespace("team")], "--wave-nodes", 2)

    assert SENTENCE_ON_CORDONS in (tmp_path / "plan" / "README.md").read_text()
    for wave in plan["waves"]:
        own = [node["name"] for node in wave["nodes"]]
        for phase in ("switch", "rollback"):
            lines = script(tmp_path, phase, wave["wave"]).splitlines()
            cordons = [line.split()[2:] for line in lines if line.startswith("  kubectl cordon ")]
            assert {*own} == {name for names in cordons for name in names}
