"""The table of `drawbridge plan`: lists of names, and the width of a terminal."""

from pathlib import Path

import msgspec
import pytest

from cli.runbooks.plan_folder import read_plan
from cli.runbooks.plan_text import format_plan
from migration.plan.model.plan import Plan
from testing.migration import plugin_node
from testing.plan import call
from testing.terminal import TerminalCall

NODES = [f"gpu-h-{number}" for number in range(10, 16)]
SHORT = "gpu-h-10, gpu-h-11, gpu-h-12 and 3 more"
ALL = ", ".join(NODES)
OTHERS = "  NAMESPACES  WORKLOADS  LEAVING PODS  EVICTED OF THEM  FREE FOR KEYS  FREE FOR CLAIMS"
REST = len("WAVE  " + OTHERS)
"""The columns of everything but the nodes."""


def nodes_of(output: str) -> str:
    return output.splitlines()[1].split("  ")[2].strip()


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    call(tmp_path, [plugin_node(name) for name in NODES], "--wave-nodes", 6)
    return read_plan(tmp_path / "plan")


@pytest.mark.parametrize(
    ("columns", "want"),
    [
        (0, SHORT),
        (40, SHORT),
        (REST + len(ALL) - 1, "gpu-h-10, gpu-h-11, gpu-h-12, gpu-h-13 and 2 more"),
        (REST + len(ALL), ALL),
        (400, ALL),
    ],
)
def test_a_list_has_as_many_names_as_the_width_holds(columns: int, want: str, plan: Plan) -> None:
    text = format_plan(plan, 80, columns)

    assert want == nodes_of(text)
    assert max(map(len, text.splitlines()[:2])) <= max(columns, REST + len(SHORT))


def test_both_lists_share_the_width(plan: Plan) -> None:
    (wave,) = plan.waves
    namespaces = tuple(f"team-of-{number}" for number in range(10, 20))
    waves = (msgspec.structs.replace(wave, namespaces=namespaces),)
    plan = msgspec.structs.replace(plan, waves=waves)
    short = max(map(len, format_plan(plan, 80).splitlines()[:2]))
    counts = []
    for width in range(1, 400):
        table = format_plan(plan, 80, width).splitlines()[:2]
        assert max(map(len, table)) <= max(width, short)
        counts.append((table[1].count("gpu-h-"), table[1].count("team-of-")))

    assert counts == sorted(counts, key=sum)
    assert ((3, 3), (6, 10)) == (counts[0], counts[-1])
    assert (4, 4) in counts


def test_a_terminal_is_filled(tmp_path: Path) -> None:
    call(tmp_path, [plugin_node(name) for name in NODES])
    options = ("--snapshot", tmp_path / "cluster.yaml", "--wave-nodes", 6)
    page = tmp_path / "page.html"

    with TerminalCall("plan", *options, "--page", page, COLUMNS="400") as terminal:
        status, output, errors = terminal.end()

    assert (0, "") == (status, errors)
    assert ALL == nodes_of(output)


def test_a_pipe_gets_three_names_at_every_width(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")

    result = call(tmp_path, [plugin_node(name) for name in NODES], "--wave-nodes", 6)

    assert SHORT == nodes_of(result.stdout)
