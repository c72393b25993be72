"""README.md of a plan is read as Markdown, and has texts that users of the cluster wrote."""

from pathlib import Path

import pytest

from testing.documents import namespace
from testing.migration import SHARE, hami_node, workload
from testing.plan import call


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a](https://a.example)", r"\[a](https://a.example)"),
        (r"\[a](https://a.example)", r"\\\[a](https://a.example)"),
        ("**do this**", r"\*\*do this\*\*"),
        ("<b>a|b</b>", r"&lt;b&gt;a\|b&lt;/b&gt;"),
    ],
)
def test_a_name_in_the_page_is_no_markup(tmp_path: Path, text: str, expected: str) -> None:
    """A pod may name any text as its owner."""
    _, pod = workload("web", SHARE, ["hami-0"])
    pod["metadata"]["ownerReferences"] = [
        {"apiVersion": "a.example/v1", "kind": "Set", "name": text, "controller": True}
    ]
    call(tmp_path, [hami_node("hami-0"), hami_node("hami-1"), pod], "--wave-nodes", 1)

    page = (tmp_path / "plan" / "README.md").read_text()

    assert f"Set/team/{expected}" in page
    assert text not in page.replace(expected, "")


def test_workloads_of_a_wave_with_the_same_losses_share_a_line(tmp_path: Path) -> None:
    """There was a line of hundreds of characters for each, and they differed in one name."""
    pods = [
        entry
        for name in ("api", "web")
        for entry in workload(name, SHARE, ["hami-0"], schedulerName="volcano")
    ]
    call(
        tmp_path,
        [hami_node("hami-0"), hami_node("hami-1"), namespace("team"), *pods],
        "--wave-nodes",
        1,
    )

    page = (tmp_path / "plan" / "README.md").read_text()

    (line,) = (line for line in page.splitlines() if "leaves scheduler" in line)
    assert line.startswith("- from wave 1 on: Deployment/team/api, Deployment/team/web: ")
