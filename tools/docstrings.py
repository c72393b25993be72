"""Sentences that stand below names in the source, for pages that are made from it."""

import ast
import inspect
from enum import StrEnum
from functools import cache
from textwrap import dedent


@cache
def texts_below(kind: type) -> dict[str, str]:
    """Return the text below each field or member that a class itself has, by name, in one line."""
    (body,) = ast.parse(dedent(inspect.getsource(kind))).body
    assert isinstance(body, ast.ClassDef)
    texts: dict[str, str] = {}
    for statement, following in zip(body.body, body.body[1:], strict=False):
        match statement, following:
            case (
                ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                texts[name] = " ".join(text.split())
            case _:
                pass
    return texts


def member_rows(kind: type[StrEnum], page: str = "") -> str:
    """Return a row of a table for each member: its value, and the text below it.

    Args:
        page: The page with a heading for each member, to which its value links; none if empty.

    Raises:
        LookupError: A member has no text.
    """
    texts = texts_below(kind)
    missing = [member.name for member in kind if member.name not in texts]
    if missing:
        raise LookupError(f"nothing stands below {', '.join(missing)}")
    names = {
        member: f"[`{member.value}`]({page}#{member.value.lower()})"
        if page
        else f"`{member.value}`"
        for member in kind
    }
    return "".join(f"| {name} | {texts[member.name]} |\n" for member, name in names.items())
