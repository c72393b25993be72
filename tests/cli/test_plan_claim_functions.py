"""The functions of a plan's scripts for pods with claims, each by itself."""

from pathlib import Path
from typing import Final

import pytest

from testing.plan_functions import CLUSTER, run_functions

LINE: Final = "{name}-0 {kind}/{name} {namespace} hami-1 translated - - True"
LEAVING: Final = "driver_leaves hami-core-gpu.project-hami.io"
ASK: Final = 'ask_about_claims() { printf "%s asks\\n" "$1"; }'
"""The question, without a person."""


def line(name: str, *, namespace: str = "team", kind: str = "StatefulSet") -> str:
    return LINE.format(name=name, namespace=namespace, kind=kind)


@pytest.mark.parametrize("number", [3, 3000])
def test_pods_of_a_large_namespace_of_an_earlier_wave_do_not_hide_others(
    tmp_path: Path, number: int
) -> None:
    """Their lines did not fit into an argument, so nobody was asked about any pod."""
    pods = [line(f"inference-{index}") for index in range(number)]
    (tmp_path / "pods").write_text("\n".join([*pods, line("new", namespace="other")]))
    earlier = f"switched_before team {number}"

    ran = run_functions(tmp_path, f"{CLUSTER}\n{ASK}\n{LEAVING}\n{earlier}\nstop_at_claims hami-1")

    assert (0, "") == (ran.returncode, ran.stderr)
    assert "StatefulSet/other/new asks\n" == ran.stdout


def test_any_number_of_workloads_may_be_apart(tmp_path: Path) -> None:
    """The pattern of each was an argument, and all of them together have a bound, too: with this stack 128 KiB."""
    (tmp_path / "pods").write_text(line("new"))
    apart = 'for ((i = 0; i < 1500; i++)); do printf -v name %0100d "$i" && apart+=("$name "); done'
    ran = run_functions(tmp_path, f"ulimit -s 512\n{CLUSTER}\n{apart}\nprint_lasting")

    assert (0, "") == (ran.returncode, ran.stderr)
    assert f"{line('new')}\n" == ran.stdout


def test_a_line_more_is_looked_at_as_fast_as_the_first(tmp_path: Path) -> None:
    """The text of all lines was copied for each: 4000 pods took twenty seconds."""
    pods = [line(f"inference-{index}") for index in range(8000)]
    (tmp_path / "pods").write_text("\n".join([*pods, line("new").replace("hami-1", "hami-2")]))

    ran = run_functions(tmp_path, 'ulimit -t 5\nlines="$(<pods)"\non_any_of "$lines" hami-2 hami-3')

    assert 0 == ran.returncode, ran.stderr
    assert f"{line('new').replace('hami-1', 'hami-2')}\n" == ran.stdout


@pytest.mark.parametrize(
    "call",
    ["print_claimed", "print_lasting", "print_noted hami-1", "print_members Job/team/a"],
)
def test_a_grep_that_fails_is_a_question_without_an_answer(tmp_path: Path, call: str) -> None:
    """Its failure was taken for no line."""
    (tmp_path / "pods").write_text(line("web"))
    (tmp_path / "noted").write_text("Job/team/a=1")
    broken = 'grep() { echo "grep: memory exhausted" >&2; return 2; }'

    ran = run_functions(tmp_path, f'{CLUSTER}\n{broken}\nlines="$({call})"\necho went on')

    assert (1, "") == (ran.returncode, ran.stdout)


def test_a_new_daemon_set_beside_pods_of_an_earlier_wave_is_asked_about(tmp_path: Path) -> None:
    """Other nodes had devices for its neighbours, and have none for its pods."""
    pods = [line("web"), line("monitor", kind="DaemonSet")]
    (tmp_path / "pods").write_text("\n".join(pods))

    text = f"{CLUSTER}\n{ASK}\n{LEAVING}\nswitched_before team 5\nstop_at_claims hami-1"
    ran = run_functions(tmp_path, text)

    assert (0, "") == (ran.returncode, ran.stderr)
    assert "DaemonSet/team/monitor asks\n" == ran.stdout


def test_pods_that_wait_are_deleted_for_the_reason_of_their_own_workload(tmp_path: Path) -> None:
    """A neighbour with claims in its manifest says nothing of them."""
    own = line("web").replace("translated -", "translated true")
    neighbour = line("native").replace("translated", "native")
    (tmp_path / "pods").write_text(f"{own}\n{neighbour}\n")

    ran = run_functions(tmp_path, f"{CLUSTER}\nsay_waiting StatefulSet/team/web web-1")

    assert 0 == ran.returncode, ran.stderr
    assert "drawbridge.internal/translate in the template for pods of StatefulSet/team/web\n" in (
        ran.stderr
    )
    assert (
        "then delete those with claims: kubectl delete pods --namespace=team web-1\n" in ran.stderr
    )
