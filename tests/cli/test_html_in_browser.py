"""The pages in a real browser: nothing of a cluster runs, nothing is fetched, and people can use them."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest

from cli.verbs.rehearse.page import format_rehearsal_page
from testing.browser import Browser, browser, find_browser
from testing.command import EXAMPLES, drawbridge
from testing.html_pages import HOSTILE, cluster, large_cluster
from testing.migration_fleet import FleetSize, fleet
from testing.rehearsals import FAILED

PROGRAM = find_browser()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium is installed")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    assert PROGRAM is not None
    folder = Path(mkdtemp(prefix="drawbridge-browser-"))
    try:
        with browser(PROGRAM, folder) as running:
            yield running
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_page(folder: Path, command: str, snapshot: Path) -> Path:
    page = folder / f"{command}.html"
    if command == "plan":
        result = drawbridge("plan", "--snapshot", snapshot, "--page", page)
        assert result.exit_code in {0, 1}, result.stderr
        return page
    result = drawbridge(command, "--snapshot", snapshot, "-o", "html")
    assert result.exit_code in {0, 1}, result.stderr
    page.write_text(result.stdout, encoding="utf-8")
    return page


@pytest.fixture(scope="module")
def migration_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(
        tmp_path_factory.mktemp("page"), "assess", EXAMPLES / "migration" / "cluster.yaml"
    )


def shown_rows(chromium: Browser) -> list[str]:
    return [
        str(name)
        for name in chromium.evaluate(
            "[...document.querySelectorAll('[data-value] > th')]"
            ".filter((cell) => cell.offsetParent).map((cell) => cell.textContent)"
        )
    ]


@pytest.mark.parametrize("command", ["assess", "inventory", "plan"])
@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_run_and_fetch_nothing(
    chromium: Browser, command: str, text: str, tmp_path: Path
) -> None:
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*cluster(text)]}))
    page = write_page(tmp_path, command, file)
    chromium.open(page)

    assert chromium.evaluate("document.body.textContent").count(text) > 1
    assert chromium.evaluate("typeof window.hacked") == "undefined"
    assert chromium.requests() == [page.as_uri()]
    assert chromium.complaints() == []


def test_a_script_that_is_not_the_pages_own_does_not_run(
    chromium: Browser, migration_page: Path
) -> None:
    chromium.open(migration_page)
    ran = chromium.evaluate(
        "new Promise((resolve) => {"
        " const script = document.createElement('script');"
        " script.textContent = 'window.hacked = 1';"
        " document.body.append(script);"
        " setTimeout(() => resolve(window.hacked === 1), 100); })"
    )

    assert ran is False
    assert "Content Security Policy" in str(chromium.complaints())


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("command", ["assess", "inventory", "plan"])
def test_a_page_is_accessible(
    chromium: Browser, command: str, tmp_path: Path, *, dark: bool
) -> None:
    snapshot = tmp_path / "cluster.json"
    snapshot.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*cluster("x")]}))
    chromium.open(write_page(tmp_path, command, snapshot), dark=dark)
    chromium.evaluate(
        "for (const folded of document.querySelectorAll('details')) folded.open = true"
    )

    assert chromium.accessibility_violations() == []


def test_the_search_is_a_slash_away_and_hides_what_does_not_match(
    chromium: Browser, migration_page: Path
) -> None:
    chromium.open(migration_page)
    before = shown_rows(chromium)
    chromium.press("/", "/")
    chromium.type("note")
    chromium.evaluate("new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)))")
    rows = shown_rows(chromium)
    chromium.press("Escape")

    assert rows == ["Deployment/team-a/notebooks"]
    assert shown_rows(chromium) == before
    assert len(before) == 3


def test_a_choice_shows_the_workloads_of_one_outcome(
    chromium: Browser, migration_page: Path
) -> None:
    chromium.open(migration_page)
    chromium.evaluate(
        "(() => { const choice = document.getElementById('choice'); choice.value = 'native';"
        " choice.dispatchEvent(new Event('change')); })();"
        "new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)))"
    )

    assert shown_rows(chromium) == ["Job/team-b/train"]
    assert chromium.evaluate("document.getElementById('count').textContent").startswith("4 of ")


def test_a_column_is_sorted_by_its_heading_as_numbers_and_back(
    chromium: Browser, migration_page: Path
) -> None:
    chromium.open(migration_page)
    pods = (
        "[...document.querySelectorAll('[data-value] > td:nth-child(2)')].map((c) => c.textContent)"
    )
    press = (
        "[...document.querySelectorAll('thead button')]"
        ".find((button) => button.textContent === 'Pods').click()"
    )
    chromium.evaluate(press)
    up = chromium.evaluate(pods)
    chromium.evaluate(press)
    down = chromium.evaluate(pods)

    assert (up, down) == (["2", "2", "3"], ["3", "2", "2"])


def test_a_workload_is_opened_by_the_keyboard_and_leads_to_its_node(
    chromium: Browser, migration_page: Path
) -> None:
    chromium.open(migration_page)
    chromium.evaluate("document.querySelector('summary').focus()")
    chromium.press("Enter")
    is_open = chromium.evaluate("document.querySelector('details').open")
    chromium.press("Tab")
    chromium.press("Enter")
    chromium.evaluate("new Promise((resolve) => setTimeout(resolve, 100))")

    assert is_open is True
    assert chromium.evaluate("document.querySelector(':target h3').textContent") == "hami-0"


def test_colours_follow_the_system_and_a_button(chromium: Browser, migration_page: Path) -> None:
    colour = "getComputedStyle(document.body).backgroundColor"
    shown = []
    for dark in (False, True):
        chromium.open(migration_page, dark=dark)
        shown.append(chromium.evaluate(colour))
        chromium.evaluate("document.getElementById('theme').click()")
        shown.append(chromium.evaluate(colour))

    light, dark_ = "rgb(255, 255, 255)", "rgb(13, 17, 23)"
    assert shown == [light, dark_, dark_, light]


@pytest.fixture(scope="module")
def plan_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plan")
    snapshot = folder / "cluster.json"
    objects = fleet(FleetSize(nodes=10, workloads=30, used_percent=47))
    snapshot.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    return write_page(folder, "plan", snapshot)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_the_page_of_a_plan_is_accessible_and_fits_its_window(
    chromium: Browser, plan_page: Path, width: int, *, dark: bool
) -> None:
    chromium.open(plan_page, dark=dark, width=width)
    chromium.evaluate(
        "for (const folded of document.querySelectorAll('details')) folded.open = true"
    )

    assert chromium.accessibility_violations() == []
    assert chromium.evaluate("document.documentElement.scrollWidth") <= width
    assert chromium.complaints() == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_the_page_of_a_rehearsal_is_accessible_and_fits_its_window(
    chromium: Browser, tmp_path: Path, width: int, *, dark: bool
) -> None:
    page = tmp_path / "rehearse.html"
    page.write_text(format_rehearsal_page(FAILED), encoding="utf-8")

    chromium.open(page, dark=dark, width=width)

    assert chromium.accessibility_violations() == []
    assert chromium.evaluate("document.documentElement.scrollWidth") <= width
    assert chromium.complaints() == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_the_page_of_a_replay_is_accessible_and_fits_its_window(
    chromium: Browser, tmp_path: Path, width: int, *, dark: bool
) -> None:
    folder = EXAMPLES / "replay"
    call = ("--snapshot", folder / "cluster.yaml", "--pods", folder / "pods.csv", "-o", "html")
    page = tmp_path / "replay.html"
    page.write_text(drawbridge("replay", *call).stdout, encoding="utf-8")

    chromium.open(page, dark=dark, width=width)

    assert chromium.accessibility_violations() == []
    assert chromium.evaluate("document.documentElement.scrollWidth") <= width
    assert chromium.requests() == [page.as_uri()]
    assert chromium.complaints() == []


def test_the_timeline_leads_to_the_devices_of_a_wave(chromium: Browser, plan_page: Path) -> None:
    chromium.open(plan_page)
    chromium.evaluate("document.querySelector('a[href=\"#wave-2\"]').click()")

    assert chromium.evaluate("document.querySelector(':target').textContent") == "Wave 2"


@pytest.mark.parametrize("width", [360, 1280])
def test_a_page_fits_its_window(chromium: Browser, migration_page: Path, width: int) -> None:
    chromium.open(migration_page, width=width)

    assert chromium.evaluate("document.documentElement.scrollWidth") <= width


def test_a_page_of_many_nodes_is_searched(chromium: Browser, tmp_path: Path) -> None:
    snapshot = tmp_path / "cluster.yaml"
    snapshot.write_text(large_cluster(nodes=400, workloads=50))
    chromium.open(write_page(tmp_path, "assess", snapshot))
    chromium.press("/", "/")
    chromium.type("node-0399")
    chromium.evaluate("new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)))")
    cards = chromium.evaluate(
        "[...document.querySelectorAll('.card')].filter((card) => !card.hidden).length"
    )

    assert cards == 1


def test_a_search_is_in_the_address(chromium: Browser, migration_page: Path) -> None:
    chromium.open(migration_page)
    chromium.press("/", "/")
    chromium.type("note b")
    chromium.evaluate("new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)))")
    address = chromium.evaluate("location.hash")
    chromium.press("Escape")
    cleared = chromium.evaluate("location.hash")
    chromium.evaluate("location.hash = '#q=note'")
    chromium.evaluate("new Promise((resolve) => setTimeout(resolve, 50))")

    assert (address, cleared) == ("#q=note%20b", "")
    assert chromium.evaluate("document.getElementById('search').value") == "note"
    assert shown_rows(chromium) == ["Deployment/team-a/notebooks"]
