"""The rooms of the code: import contracts, purity, sizes. docs/architecture.md draws them."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from importlinter import configuration
from importlinter.application import use_cases

ROOT: Final = Path(__file__).parents[1]
PYPROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES: Final[list[str]] = PYPROJECT["tool"]["importlinter"]["root_packages"]
MAX_LINES: Final = 500
MAX_FILES: Final = 21
"""The files of a folder, `__init__` included."""
VAGUE_NAMES: Final = frozenset(
    [
        "asked",
        "each",
        "found",
        "given",
        "got",
        "held",
        "judged",
        "kept",
        "known",
        "listed",
        "looked",
        "made",
        "named",
        "one",
        "published",
        "said",
        "seen",
        "shown",
        "some",
        "stored",
        "taken",
        "told",
        "wanted",
        "written",
    ]
)
TABLES: Final = ("tests/", "e2e/", "examples/")


def test_contracts_hold(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    configuration.configure()

    lint_imports = use_cases.lint_imports(cache_dir=".import_linter_cache", no_logo=True)

    assert lint_imports, capsys.readouterr().out


def test_a_contract_names_packages_and_never_lists_files() -> None:
    """A new file in a package is registered nowhere."""
    named = [
        module.rstrip("*").rstrip(".")
        for contract in PYPROJECT["tool"]["importlinter"]["contracts"]
        for module in (*contract.get("source_modules", ()), *contract.get("modules", ()))
    ]
    files = [module for module in named if (ROOT / f"{module.replace('.', '/')}.py").is_file()]

    # Single modules of a package that is not pure as a whole.
    assert set(files) == {
        "certs.rotation",
        "kube.errors",
        "kube.jsonpatch",
        "kube.names",
        "kube.quantity",
    }


def test_every_package_is_in_the_wheel_and_has_a_place_in_the_layers() -> None:
    (layers,) = (
        contract["layers"]
        for contract in PYPROJECT["tool"]["importlinter"]["contracts"]
        if contract["id"] == "rooms"
    )
    placed = {name for layer in layers for name in layer.split(" | ")}
    wheel = set(PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"])
    folders = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    tooling = {"bench", "e2e", "testing", "tests", "tools"}

    assert set(PACKAGES) == placed
    assert set(PACKAGES) == wheel - {"examples"}
    assert set(PACKAGES) == folders - tooling


def _product_files() -> list[Path]:
    return sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))


def test_every_folder_of_code_is_a_package_that_says_what_it_is_for() -> None:
    folders = {file.parent for file in _product_files()}
    silent = []
    for folder in sorted(folders):
        face = folder / "__init__.py"
        if not face.is_file() or not ast.get_docstring(ast.parse(face.read_text())):
            silent.append(str(folder.relative_to(ROOT)))

    assert silent == []


def test_no_two_folders_import_each_other() -> None:
    """A folder's ground floor is a folder of its own, so that a reader always knows the way down."""
    modules = {_module_name(file): file for file in _product_files()}
    imports = {
        (file.parent, modules[name].parent)
        for file in _product_files()
        for name in _imported_names(ast.parse(file.read_text()))
        if name in modules and modules[name].parent != file.parent
    }
    circles = {
        " <-> ".join(str(folder.relative_to(ROOT)) for folder in sorted(pair))
        for pair in imports
        if pair[::-1] in imports
    }

    assert circles == set()


def _module_name(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported_names(module: ast.Module) -> Iterator[str]:
    """Yield the names of all modules that a module may import."""
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_a_folder_can_be_surveyed() -> None:
    crowded = {
        str(folder.relative_to(ROOT)): len(files)
        for folder in {file.parent for file in _product_files()}
        if len(files := [*folder.glob("*.py")]) > MAX_FILES
    }

    assert crowded == {}


MIXED: Final = {
    "driver/kubelet": "its API is what protoc makes",
    "kube": "names, quantities and errors are used everywhere",
    "translation/vocabularies": "a file or a folder for each legacy system",
}
"""Folders that have both files and folders, and why."""


def test_a_folder_has_files_or_folders() -> None:
    alone = {"__init__.py", "__main__.py"}
    folders = {file.parent for file in _product_files()}
    mixed = {
        str(folder.relative_to(ROOT))
        for folder in folders
        if any(other.parent == folder for other in folders)
        and any(file.name not in alone for file in folder.glob("*.py"))
    }

    assert mixed == set(MIXED)


def test_no_file_is_longer_than_two_ideas() -> None:
    long = {
        str(file.relative_to(ROOT)): lines
        for file in _product_files()
        if (lines := _lines_of_ideas(file)) > MAX_LINES
    }

    assert long == {}, f"more than {MAX_LINES} lines: move a part into a file of its own"


def _lines_of_ideas(file: Path) -> int:
    """Return the lines of a file without its enums: they are tables."""
    text = file.read_text()
    enums = [
        node
        for node in ast.parse(text).body
        if isinstance(node, ast.ClassDef)
        and any(ast.unparse(base).endswith("Enum") for base in node.bases)
    ]
    return len(text.splitlines()) - sum(
        (enum.end_lineno or enum.lineno) - enum.lineno for enum in enums
    )


def test_names_of_the_product_say_what_they_hold() -> None:
    """Fields of values are public names, so they do not count."""
    vague = [
        f"{file.relative_to(ROOT)}:{line} {name}"
        for file in _product_files()
        for line, name in _local_names(ast.parse(file.read_text()))
        if name.strip("_") in VAGUE_NAMES
    ]

    assert vague == []


def _local_names(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the functions, arguments and variables of a module, without the fields of its classes."""
    fields = {
        statement.target
        for node in ast.walk(module)
        if isinstance(node, ast.ClassDef)
        for statement in node.body
        if isinstance(statement, ast.AnnAssign)
    }
    for node in ast.walk(module):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.arg(arg=name):
                yield node.lineno, name
            case ast.Name(id=name, ctx=ast.Store()) if node not in fields:
                yield node.lineno, name


def test_helpers_that_tests_share_are_not_in_a_module_of_tests() -> None:
    """A reader of a test looks for its helpers in `testing/`, or beside it in a `conftest`."""
    shared = [
        f"{file.relative_to(ROOT)}: {line}"
        for folder in ("tests", "e2e", "bench", "testing")
        for file in sorted((ROOT / folder).rglob("*.py"))
        for line in file.read_text().splitlines()
        if re.match(r"\s*from (tests|e2e)[.\w]*\.test_\w+ import|\s*from tests import", line)
    ]

    assert not shared, "\n".join(shared)


def test_the_webhook_is_the_https_server_and_nothing_else() -> None:
    """Decisions about reviews are in admission; projections and caches are in clusterstate."""
    files = {file.stem for file in (ROOT / "webhook").glob("*.py")} - {"__init__", "__main__"}

    assert not [path for path in (ROOT / "webhook").iterdir() if (path / "__init__.py").is_file()]
    assert files <= {
        "body_reader",
        "budgets",
        "ca_bundle_check",
        "endpoint",
        "evaluator",
        "metrics",
        "mutate",
        "places",
        "reviews",
        "route",
        "self_check",
        "serving_certificate",
        "settings",
        "settled_denials",
        "validate",
    }


@pytest.mark.parametrize(
    ("process", "foreign"),
    [
        ("observer", ("admission", "rules", "webhook", "controllers", "cli", "certs")),
        ("sidecar", ("admission", "rules", "webhook", "controllers", "cli", "certs")),
        ("webhook", ("controllers", "observer", "cli")),
        ("controllers", ("webhook", "observer", "cli")),
        (
            "controllers.certificates",
            ("clusterstate", "rules", "allocator", "cel_expr_python", "webhook", "observer", "cli"),
        ),
        (
            "driver",
            (
                "translation",
                "admission",
                "webhook",
                "controllers",
                "observer",
                "cli",
                "certs",
                "rules",
            ),
        ),
    ],
)
def test_a_process_loads_nothing_of_its_neighbours(process: str, foreign: tuple[str, ...]) -> None:
    program = f"import sys, {process}.__main__; print(*sorted(sys.modules), sep=chr(10))"
    completed = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    modules = set(completed.stdout.split())
    loaded = {name.partition(".")[0] for name in modules}

    assert process in modules
    assert loaded.isdisjoint(foreign)


def test_the_architecture_page_names_every_package() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    folders = {str(file.parent.relative_to(ROOT)) for file in _product_files()}

    assert sorted(folder for folder in folders if not re.search(rf"\b{folder}/", page)) == []


def test_only_one_function_of_the_commands_prints_on_standard_error() -> None:
    """It escapes the sequences that terminals and CI servers obey."""
    printing = {
        str(file.relative_to(ROOT))
        for file in (ROOT / "cli").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call)
        and any("click.echo" in ast.unparse(part) for part in (node.func, *node.args[:1]))
        and any(keyword.arg == "err" for keyword in node.keywords)
    }

    assert printing == {"cli/output/standard_error.py"}
