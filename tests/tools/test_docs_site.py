"""The site of the documentation: whole, linked, searchable, and without anything from elsewhere."""

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

import pytest

from findings.documentation import CODES_PAGE
from findings.finding import Code
from testing.browser import Browser, browser, find_browser
from tools.docs_site import main, pages, version, write_versions

ROOT = Path(__file__).parent.parent.parent
PROGRAM = find_browser()
in_a_browser = pytest.mark.skipif(PROGRAM is None, reason="no Chromium is installed")
_ASSET = re.compile(
    r"<(?:script|img|iframe|link(?! rel=\"canonical\"))[^>]*(?:src|href)=[\"']?(?:https?:)?//[^>]*>"
)
COPIED = (
    "docs",
    "examples",
    "manifests",
    "allocator/strategies",
    "translation/profiles",
    "tools/docs_theme",
)
_ADDRESS = "https://docs.example.com"
_IN_STYLE = re.compile(r"(?:@import|url\()\s*[\"']?(?:https?:)?//")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "site"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tools.docs_site.DOCUMENTATION", _ADDRESS)
        assert main(["--out", str(folder)]) == 0
    return folder / version(ROOT)


def test_every_page_is_there(site: Path) -> None:
    for page in pages(ROOT):
        name = "index" if page.name == "README.md" else page.stem
        assert (site / page.parent / f"{name}.html").is_file()
    assert "Commands" in (site / "docs/reference/commands.html").read_text()


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    for path in site.rglob("*.html"):
        assert _ASSET.findall(path.read_text()) == [], path
    for path in site.rglob("*.css"):
        assert _IN_STYLE.findall(path.read_text()) == [], path


def test_every_link_leads_to_a_file(site: Path) -> None:
    for path in site.rglob("*.html"):
        if path.name == "404.html":
            continue  # Its links start at the root of a server.
        links = re.findall(r"(?:href|src)=\"([^\"#?:]+)[\"#]", path.read_text())
        assert [link for link in links if not (path.parent / link).exists()] == [], path


def test_pages_name_the_address_that_findings_link_to(site: Path) -> None:
    """`check -o sarif` sends readers there; only the address has to be that of the publisher."""
    text = (site / CODES_PAGE).read_text()
    address = f"{_ADDRESS}/{site.name}/{CODES_PAGE}"

    assert f'<link rel="canonical" href="{address}">' in text
    assert [code for code in Code if f'id="{code.value.lower()}"' not in text] == []


def test_the_search_knows_every_page(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text())
    places = {entry["location"].partition("#")[0] for entry in index["docs"]}

    assert {"index.html", "docs/assess.html", "docs/reference/commands.html"} <= places
    assert len(places) >= len(pages(ROOT))


def test_versions_are_listed_with_the_newest_first(tmp_path: Path) -> None:
    for name in ("0.9.0", "0.10.0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").write_text("")
    write_versions(tmp_path)
    text = (tmp_path / "index.html").read_text()

    assert re.findall(r"href=\"([^/]*)/", text) == ["0.10.0", "0.9.0"]
    assert 'url=0.10.0/index.html"' in text


def test_broken_links_and_unlisted_pages_are_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    for name in ("README.md", "mkdocs.yml", "pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, root / name)
    for name in COPIED:
        shutil.copytree(ROOT / name, root / name)
    (root / "docs" / "test.md").write_text("# Test\n[a](nothing.md) [b](findings.md#nowhere)\n")
    (root / "docs" / "unlisted.md").write_text("# A page that the index does not list\n")
    monkeypatch.setattr("tools.docs_site.ROOT", root)

    assert main(["--out", str(tmp_path / "site")]) == 1
    for name in ("nothing.md", "#nowhere", "unlisted.md"):
        assert name in caplog.text


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert PROGRAM is not None
    with browser(PROGRAM, tmp_path_factory.mktemp("browser")) as running:
        yield running


@in_a_browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("page", ["index", "docs/findings", "docs/reference/commands"])
def test_everybody_can_read_the_pages(
    site: Path, chromium: Browser, page: str, *, dark: bool
) -> None:
    chromium.open(site / f"{page}.html", dark=dark)

    assert chromium.accessibility_violations() == []


@in_a_browser
def test_a_reader_chooses_light_or_dark(site: Path, chromium: Browser) -> None:
    chromium.open(site / "index.html")

    for mode in ("dark", "light"):
        chromium.evaluate(f"document.querySelector('[data-bs-theme-value={mode}]').click()")
        assert chromium.evaluate("document.documentElement.dataset.bsTheme") == mode
        assert mode in str(chromium.evaluate("localStorage.getItem('mkdocs-colormode')"))


@in_a_browser
def test_the_tree_shows_where_a_page_is(site: Path, chromium: Browser) -> None:
    chromium.open(site / "docs" / "simulate.html")

    here = "document.querySelector('.page-tree details[open] a[aria-current=page]')"
    assert chromium.evaluate(f"new URL({here}.href).pathname === location.pathname")
    chromium.open(site / "docs" / "simulate.html", width=400)
    assert chromium.evaluate("document.documentElement.scrollWidth") <= 400


@contextmanager
def served(site: Path, index_may_come: Event) -> Iterator[str]:
    """Serve a site at an address; the index of its search comes no sooner than it may."""

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.endswith("search_index.json"):
                index_may_come.wait()
            super().do_GET()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=site)) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            index_may_come.set()
            server.shutdown()
            thread.join()


_TYPE = """
const field = document.getElementById("mkdocs-search-query");
field.value = "quota";
field.dispatchEvent(new Event("keyup"));
"""
_FIRST_RESULT = """
new Promise((resolve, reject) => {
  const results = document.getElementById("mkdocs-search-results");
  const look = () => results.querySelector("article a") && resolve(results.textContent);
  new MutationObserver(look).observe(results, { childList: true });
  look();
  setTimeout(() => reject("no result"), 60_000);
})
"""


@in_a_browser
def test_what_is_typed_before_the_index_is_loaded_is_searched(
    site: Path, chromium: Browser
) -> None:
    index_may_come = Event()
    with served(site, index_may_come) as address:
        chromium.open(f"{address}/docs/quota.html")
        chromium.evaluate(_TYPE)
        assert chromium.evaluate("document.querySelector('#mkdocs-search-results a')") is None
        index_may_come.set()

        assert "quota" in str(chromium.evaluate(_FIRST_RESULT)).lower()
