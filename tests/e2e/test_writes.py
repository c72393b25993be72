"""The table of writes names every write in the code, so that no new one escapes its story."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from e2e.writes import CERTIFICATE_WRITES, CONTROLLER_WRITES, NOT_KILLED, QUOTA_WRITES

ROOT: Final = Path(__file__).parents[2]
ROOMS: Final = ("controllers", "kube/runtime", "certs", "process")
METHODS: Final = frozenset({"create", "patch", "delete"})
"""The methods of the client that send POST, PATCH and DELETE."""


def written_methods() -> frozenset[str]:
    """Return the methods of the client that send something else than GET."""
    tree = ast.parse((ROOT / "kube/client/client.py").read_text())
    return frozenset(
        function.name
        for function in ast.walk(tree)
        if isinstance(function, ast.AsyncFunctionDef)
        for constant in ast.walk(function)
        if isinstance(constant, ast.Constant)
        and constant.value in {"POST", "PATCH", "PUT", "DELETE"}
    )


def writes_of(path: Path) -> Iterator[str]:
    """Yield the writes in a module."""
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    yield from _writes_in(ast.parse(path.read_text()), module)


def _writes_in(node: ast.AST, name: str) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _writes_in(child, f"{name}.{child.name}")
            continue
        if (
            isinstance(child, ast.Call)
            and isinstance(child.func, ast.Attribute)
            and child.func.attr in METHODS
            and ast.unparse(child.func.value).endswith("client")
        ):
            yield f"{name} {child.func.attr}"
        yield from _writes_in(child, name)


def test_only_these_methods_of_the_client_write() -> None:
    assert METHODS == written_methods()


def test_every_write_is_in_the_table() -> None:
    in_code = {
        write
        for package in ROOMS
        for path in (ROOT / package).rglob("*.py")
        for write in writes_of(path)
    }

    assert {*CERTIFICATE_WRITES, *CONTROLLER_WRITES, *QUOTA_WRITES, *NOT_KILLED} == in_code
