"""`drawbridge demo`: the examples translated, offline, in seconds."""

import os
import shutil
import sys
import textwrap
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from answers.manifests.translate import TranslatedObject, translate_objects
from answers.model.findings import DEFAULT_NAMESPACE
from answers.model.translation_snapshot import build_snapshot
from cli.output import diff
from cli.output.help import Command
from cli.output.layout import NARROWEST, format_paragraph
from cli.output.translate_text import result_paragraph
from kube.api.workloads import pod_path, replace_at, resolve_path
from kube.manifests.reader import read_objects
from kube.manifests.source import SourceObject
from kube.names import NAME, REQUEST_ANNOTATION
from process.profiles.profile_files import load_profiles
from translation.cluster.snapshot import TranslationOptions, TranslationSnapshot

CLUSTER: Final = "cluster/cluster.yaml"


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One example of the demo.

    Attributes:
        file: A path below examples/.
        in_full: True to show the manifest before and after.
    """

    title: str
    file: str
    in_full: bool = False


STEPS: Final = (
    Step(title="A share of a GPU becomes a claim", file="share.yaml", in_full=True),
    Step(title="A percentage becomes amounts", file="half-of-each.yaml"),
    Step(
        title="Init containers and sidecars share devices as before", file="init-and-sidecar.yaml"
    ),
    Step(title="Lossy steps are reported", file="mig-mode.yaml"),
    Step(title="Natively supported requests pass through", file="whole-gpu.yaml"),
    Step(title="A mistake is rejected, with a fix", file="mistakes/bytes-for-mebibytes.yaml"),
)


@click.command("demo", cls=Command)
def demo() -> None:
    """Show the translation of a few examples, with the reasons; needs no cluster.

    The examples come with the command, and so does the recorded cluster. Read-only.
    """
    examples = shipped_examples()
    width = shutil.get_terminal_size().columns
    for part in demo_parts(examples, width):
        click.echo(part)
    click.echo(what_next(examples))


def shipped_examples() -> Traversable:
    """Return the folder of examples, of the installed package or of the repository."""
    package_folder = files("cli") / "examples"
    return package_folder if package_folder.is_dir() else Path(__file__).parents[3] / "examples"


def demo_parts(examples: Traversable, width: int) -> Iterator[str]:
    """Yield the demo, step by step."""
    state = read_objects((examples / CLUSTER).read_bytes(), CLUSTER)
    snapshot, _ = build_snapshot(load_profiles(), (), state)
    nodes = sum(object_.kind == "Node" for object_ in state)
    yield textwrap.fill(
        f"Pods written for device plugins, and the pods with ResourceClaims that they become. The "
        f"cluster is a recorded one of {nodes} nodes; no cluster is contacted.",
        max(width, NARROWEST),
    )
    for number, step in enumerate(STEPS, start=1):
        content = (examples / step.file).read_bytes()
        manifests = read_objects(content, f"examples/{step.file}")
        yield "\n" + click.style(f"{number}. {step.title}", bold=True, underline=True)
        yield from _comment(content.decode(), width)
        for result in _translate(manifests, snapshot):
            if step.in_full:
                yield from _in_full(result)
            yield format_paragraph(result_paragraph(result, snapshot.profiles), width)


def _translate(
    manifests: list[SourceObject], snapshot: TranslationSnapshot
) -> list[TranslatedObject]:
    return translate_objects(
        manifests, snapshot=snapshot, options=TranslationOptions(), namespace=DEFAULT_NAMESPACE
    )


def _comment(content: str, width: int) -> Iterator[str]:
    """Yield the comment at the top of an example."""
    lines = content.split("\n")
    count = next(number for number, line in enumerate(lines) if not line.startswith("#"))
    words = " ".join(line.removeprefix("#").strip() for line in lines[:count])
    yield textwrap.fill(words, max(width, NARROWEST)) + "\n"


def _in_full(result: TranslatedObject) -> Iterator[str]:
    """Yield the manifest as a diff, and the template, without the annotation's value."""
    old = result.source.document
    documents = [(None, template) for template in result.templates]
    for before, after in [(old, _abridge(result)), *documents]:
        lines = list(diff.unified_diff_lines(after["kind"], before, after))[4:]
        yield "\n".join(f"    {line}" for line in diff.colorize(lines)) + "\n"


def _abridge(result: TranslatedObject) -> Any:
    """Return the new object with a short text in place of the annotation's value."""
    path = pod_path(result.source.api_version, result.source.kind) or ()
    where = (*path, "metadata", "annotations", REQUEST_ANNOTATION)
    _, annotation = resolve_path(result.document, where)
    if result.document is None or annotation is None:
        return result.source.document
    return replace_at(result.document, where, "{what was requested}")


def what_next(examples: Traversable) -> str:
    """Return commands to try next, as they have to be words here."""
    program = os.path.relpath(sys.argv[0])
    words = "python -m cli" if program.endswith(".py") else program
    command = NAME if shutil.which(NAME) else words
    folder = os.path.relpath(str(examples))
    commands = (
        ("all examples, as text", f"translate -f {folder} --snapshot {folder}/cluster -o text"),
        ("all mistakes", f"translate -f {folder}/mistakes -o text"),
        (
            "another driver",
            f"translate -f {folder}/whole-gpu.yaml --profile nvidia=gpu.example.com",
        ),
        (
            "where pods would be placed, and why one is not",
            f"simulate -f {folder}/busy/pods.yaml --snapshot {folder}/busy/cluster.yaml",
        ),
        (
            "why a pod is pending",
            f"why pod finetune -n speech --snapshot {folder}/busy/cluster.yaml",
        ),
        ("your own manifests, as a diff", "translate -f FOLDER -o diff"),
        ("against the cluster of your kubeconfig", "translate -f FOLDER --live -o text"),
    )
    lines = [click.style("\nNext", bold=True, underline=True)]
    lines += [f"  # {what}\n  {command} {arguments}" for what, arguments in commands]
    if Path("Makefile").is_file():
        lines.append("  # a local cluster with the webhook in it\n  make up")
    return "\n".join(lines)
