"""The documentation as a site: `python -m tools.docs_site` writes build/site/VERSION, and an index of versions.

Pages keep the places that they have in the repository, so that a link leads to the same page here and
there; README.md is the home page. Other files that pages link to are copied as they are, folders get a
page that lists them. Nothing is fetched, neither by the build nor by the site.
"""

import argparse
import logging
import re
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from os.path import normpath
from pathlib import Path
from typing import Any, Final

from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort
from pygments.formatters import HtmlFormatter

from cli.html.elements import element
from kube.names import DOCUMENTATION

ROOT: Final = Path(__file__).parent.parent
SITE: Final = ROOT / "build" / "site"
_LINK: Final = re.compile(r"(?<=\]\()(?!https?://|#)([^)#\s]+)")
_SECTION: Final = re.compile(r"^## (.+)$", re.MULTILINE)
_DECISIONS: Final = Path("docs/adr")
_AT_THE_ROOT: Final = (
    "README.md",
    "CONTRIBUTING.md",
    "SCOPE.md",
    "SECURITY.md",
    "CODE_OF_CONDUCT.md",
)
_FENCE: Final = re.compile(r"^(```.*?^```)", re.MULTILINE | re.DOTALL)


def pages(root: Path) -> list[Path]:
    """Return the pages of the site, relative to the root of the repository."""
    at_root = [root / name for name in _AT_THE_ROOT if (root / name).exists()]
    paths = [*at_root, *root.glob("docs/**/*.md"), *root.glob("examples/*.md")]
    return sorted(path.relative_to(root) for path in paths)


def version(root: Path) -> str:
    """Return the version that the site documents."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    return str(project["version"])


def write_source(root: Path, target: Path) -> None:
    """Write the sources of the site: pages, the targets of their links, and the colours of code."""
    for page in pages(root):
        text = (root / page).read_text()
        _write(target / page, _outside_fences(text, partial(_link_folders, root=root, page=page)))
        for linked in _linked_paths(text, root, page):
            copy = target / linked.relative_to(root)
            if linked.is_dir():
                _write(copy / "index.md", _listing(linked, root, target))
            elif not copy.exists():
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(linked, copy)
    _write(target / "highlight.css", _code_colours())


def navigation(root: Path) -> list[Mapping[str, Any]]:
    """Return the tree of pages: the sections of docs/index.md in its order, examples and decisions."""
    index = (root / "docs" / "index.md").read_text()
    titles = _SECTION.split(index)[1:]
    tree: list[Mapping[str, Any]] = [{"Home": "README.md"}, {"Contents": "docs/index.md"}]
    for title, text in zip(titles[::2], titles[1::2], strict=True):
        own = [link for link in _LINK.findall(text) if link.endswith(".md")]
        tree.append({title: [normpath(Path("docs") / link) for link in own]})
    decisions = [path for path in pages(root) if path.parent == _DECISIONS]
    examples = [path for path in pages(root) if path.parts[0] == "examples"]
    tree.append({"Examples": [str(path) for path in examples]})
    tree.append({"Decisions": [str(_DECISIONS / "index.md"), *(str(path) for path in decisions)]})
    return tree


def build_site(root: Path, source: Path, target: Path) -> None:
    """Build the site strictly: a broken link, or a page that nothing lists, is an error.

    Args:
        root: The root of the repository.
        source: A folder for what the site is made of.
        target: The folder of the site.

    Raises:
        Abort: A warning of the generator.
    """
    shutil.rmtree(source, ignore_errors=True)
    write_source(root, source)
    listings = [
        str(path.relative_to(source))
        for path in sorted(source.rglob("index.md"))
        if not (root / path.relative_to(source)).exists() and path.parent != source / _DECISIONS
    ]
    config = load_config(
        str(root / "mkdocs.yml"),
        site_name=f"Drawbridge {version(root)}",
        site_url=f"{DOCUMENTATION}/{version(root)}/" if DOCUMENTATION else "",
        docs_dir=str(source),
        site_dir=str(target),
        nav=[*navigation(root), {"Files": listings}],
        strict=True,
    )
    build(config)


def write_versions(site: Path) -> None:
    """Write the page that lists the versions of a site, the newest first."""
    names = [path.name for path in site.iterdir() if (path / "index.html").exists()]
    names.sort(key=_version_key, reverse=True)
    items = "".join(
        f'<li><a href="{name}/index.html">{element("span", name).html}</a></li>' for name in names
    )
    _write(
        site / "index.html",
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Drawbridge</title>\n'
        f'<meta http-equiv="refresh" content="0; url={names[0]}/index.html"></head>\n'
        f"<body><h1>Drawbridge</h1><ul>{items}</ul></body></html>\n",
    )


def _version_key(name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", name))


# --- the source -----------------------------------------------------------------------------------


def _linked_paths(text: str, root: Path, page: Path) -> Iterator[Path]:
    """Yield the files and folders of the repository that a page links to, and that are no pages."""
    known = {root / path for path in pages(root)}
    for link in _LINK.findall(_FENCE.sub("", text)):
        path = (root / page.parent / link).resolve()
        if path.is_relative_to(root) and path.exists() and path not in known:
            yield path


def _link_folders(text: str, root: Path, page: Path) -> str:
    """Return a text with links to folders that lead to their lists."""

    def link(match: re.Match[str]) -> str:
        path = root / page.parent / match[1]
        return f"{match[1].rstrip('/')}/index.md" if path.is_dir() else match[1]

    return _LINK.sub(link, text)


def _outside_fences(text: str, change: Callable[[str], str]) -> str:
    parts = _FENCE.split(text)
    return "".join(part if part.startswith("```") else change(part) for part in parts)


def _listing(folder: Path, root: Path, target: Path) -> str:
    """Return a page that lists a folder; its files are copied."""
    names = sorted(path.name for path in folder.iterdir() if path.is_file())
    place = folder.relative_to(root)
    (target / place).mkdir(parents=True, exist_ok=True)
    for name in names:
        if not name.endswith(".md"):
            shutil.copyfile(folder / name, target / place / name)
    title = "Decisions" if place == _DECISIONS else str(place)
    return f"# {title}\n\n" + "".join(f"- [{_title(folder / name)}]({name})\n" for name in names)


def _title(path: Path) -> str:
    """Return the heading of a page, or the name of another file."""
    if path.suffix != ".md":
        return path.name
    return path.read_text().splitlines()[0].removeprefix("# ")


def _code_colours() -> str:
    """Return the style of coloured code, in light and dark."""
    light = HtmlFormatter(style="default").get_style_defs(".highlight")
    dark = HtmlFormatter(style="github-dark").get_style_defs("[data-bs-theme=dark] .highlight")
    return f"{light}\n{dark}\n"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def main(arguments: Iterable[str] | None = None) -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.docs_site", description=__doc__)
    parser.add_argument("--out", type=Path, default=SITE, help="folder of the site of all versions")
    out = parser.parse_args(None if arguments is None else list(arguments)).out
    target = out / version(ROOT)
    logging.basicConfig(format="%(levelname)s: %(message)s")
    try:
        build_site(ROOT, out.parent / f"{out.name}-source", target)
    except Abort as error:
        print(f"make docs: {error}", file=sys.stderr)
        return 1
    write_versions(out)
    print(target / "index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
