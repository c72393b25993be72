"""The explanation of a code: its cause, its fix and an example. Pure but for the package's own file.

The file is generated from the enumerations of codes, the table of rules and `tools/code_explanations.py`.
"""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final

import msgspec

FILE: Final = "explanations.json"
COMPONENTS: Final[Mapping[str, str]] = {
    "webhook": "Reported by the webhook alone: `kubectl create --dry-run=server` of the last object prints the "
    "answer, if the other objects are in the cluster, and the settings are the webhook's.",
    "audit": "Reported by the audit of the controllers alone: its metrics and reports have the code for the last "
    "object, if the other objects are in the cluster; `drawbridge inventory` prints the same without it.",
}
"""Component to a sentence about the place of its answer."""


class Example(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A manifest that yields the code.

    Attributes:
        name: The content of the manifest, or its file among the examples.
        manifest: YAML of one or several documents.
        snapshot: The file of the cluster state that it needs; empty if it needs none.
        command: The command for it, with the manifest as `example.yaml` and the settings as
            `settings.yaml`; empty for `check -f` with that state, or `simulate -f` for a reason.
        settings: The content of the settings file that it needs; empty if it needs none.
        left_out: The number of lines that are left out at the end of the manifest, all like those before.
        component: The part of Drawbridge that alone reports the code, `webhook` or `audit`, for the last
            object of the manifest in a cluster with the others; empty for a code of commands.
        answer: The words of that component; empty for a code of commands.
    """

    name: str
    manifest: str
    snapshot: str = ""
    command: str = ""
    settings: str = ""
    left_out: int = 0
    component: str = ""
    answer: str = ""

    def shown_manifest(self) -> str:
        """Return the manifest, with a comment about the lines that are left out."""
        if not self.left_out:
            return self.manifest
        return f"{self.manifest}# and {self.left_out} lines more, in the same way\n"


class RuleNote(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A rule that reports the code.

    Attributes:
        kinds: The kinds of objects that it validates.
        category: `invalid`, `infeasible`, `not yet` or `advice`.
        api_server: `yes` if the API server can enforce it, else `no` with the reason.
    """

    kinds: tuple[str, ...]
    category: str
    api_server: str


class Explanation(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The meaning of a code.

    Attributes:
        code: The code.
        cause: A sentence.
        fixes: The general fixes; a finding names the fix for its object.
        rules: The rules that report it; empty for codes of the translation and of lint, and for reasons.
        how_it_passes: The ways for the cause to pass by itself; empty if it does not.
        example: None if there is no example yet.
    """

    code: str
    cause: str
    fixes: tuple[str, ...]
    rules: tuple[RuleNote, ...] = ()
    how_it_passes: str = ""
    example: Example | None = None


class ExplainAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `explain`.

    Attributes:
        explanations: One for the code that was given, or one for each code in their order.
    """

    explanations: tuple[Explanation, ...]


@cache
def explanations() -> Mapping[str, Explanation]:
    """Return the explanation of each code, in the order of the source."""
    text = files(__package__).joinpath(FILE).read_bytes()
    answer = msgspec.json.decode(text, type=ExplainAnswer)
    return {explanation.code: explanation for explanation in answer.explanations}
