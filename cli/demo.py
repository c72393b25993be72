"""`drawbridge demo`: the main job on the examples, offline, in seconds."""

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

from cli import diff, text
from cli.manifests import Translated, translated
from cli.report import DEFAULT_NAMESPACE
from cli.world import world_of
from kube.files import SourceObject, read_objects
from kube.product import NAME, REQUEST_ANNOTATION
from webhook.shipped import load_profiles
from webhook.workloads import pod_path, reached, replaced
from webhook.world import Options, World

CLUSTER: Final = "cluster/cluster.yaml"


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One example of the demo.

    Attributes:
        file: Below examples/.
        in_full: Old and new manifest are shown, not only told.
    """

    title: str
    file: str
    in_full: bool = False


STEPS: Final = (
    Step(title="A share of a GPU becomes a claim", file="share.yaml", in_full=True),
    Step(title="A percentage becomes amounts", file="half-of-each.yaml"),
    Step(title="Init containers and sidecars count as they did", file="init-and-sidecar.yaml"),
    Step(title="What gets lost is said", file="mig-mode.yaml"),
    Step(title="What Kubernetes does by itself passes through", file="whole-gpu.yaml"),
    Step(title="A mistake is refused, and says why", file="mistakes/bytes-for-mebibytes.yaml"),
)


@click.command("demo")
def demo() -> None:
    """Show what becomes of a few manifests, and why; needs no cluster.

    Shows examples that come with the command against a recorded cluster. Changes nothing.
    """
    examples = shipped_examples()
    width = shutil.get_terminal_size().columns
    for part in told(examples, width):
        click.echo(part)
    click.echo(what_next(examples))


def shipped_examples() -> Traversable:
    """Return the folder of examples: of the installed package, or of the repository."""
    installed = files("cli") / "examples"
    return installed if installed.is_dir() else Path(__file__).parent.parent / "examples"


def told(examples: Traversable, width: int) -> Iterator[str]:
    """Yield the demo, step by step."""
    snapshot = read_objects((examples / CLUSTER).read_bytes(), CLUSTER)
    world, _ = world_of(load_profiles(), (), snapshot)
    nodes = sum(found.kind == "Node" for found in snapshot)
    yield textwrap.fill(
        f"Pods written for device plugins go in, pods of Dynamic Resource Allocation come out. The "
        f"cluster is a recorded one of {nodes} nodes; nothing is called and nothing is changed.",
        max(width, text.NARROWEST),
    )
    for number, step in enumerate(STEPS, start=1):
        content = (examples / step.file).read_bytes()
        given = read_objects(content, f"examples/{step.file}")
        yield "\n" + click.style(f"{number}. {step.title}", bold=True, underline=True)
        yield from _comment(content.decode(), width)
        for result in _translated(given, world):
            if step.in_full:
                yield from _in_full(result)
            yield text.laid_out(text.paragraph(result, world.profiles), width)


def _translated(given: list[SourceObject], world: World) -> list[Translated]:
    return translated(given, world=world, options=Options(), namespace=DEFAULT_NAMESPACE)


def _comment(content: str, width: int) -> Iterator[str]:
    """Yield the comment that an example starts with."""
    lines = content.split("\n")
    count = next(number for number, line in enumerate(lines) if not line.startswith("#"))
    words = " ".join(line.removeprefix("#").strip() for line in lines[:count])
    yield textwrap.fill(words, max(width, text.NARROWEST)) + "\n"


def _in_full(result: Translated) -> Iterator[str]:
    """Yield old against new, and the template, without what only machines read."""
    old = result.source.document
    documents = [(None, template) for template in result.templates]
    for before, after in [(old, _abridged(result)), *documents]:
        lines = list(diff.unified(after["kind"], before, after))[4:]
        yield "\n".join(f"    {line}" for line in diff.coloured(lines)) + "\n"


def _abridged(result: Translated) -> Any:
    """Return the new object with a request annotation that fits on the line."""
    path = pod_path(result.source.api_version, result.source.kind) or ()
    where = (*path, "metadata", "annotations", REQUEST_ANNOTATION)
    _, recorded = reached(result.document, where)
    if result.document is None or recorded is None:
        return result.source.document
    return replaced(result.document, where, "{what was asked}")


def what_next(examples: Traversable) -> str:
    """Return commands that work, as they have to be typed here."""
    program = os.path.relpath(sys.argv[0])
    typed = "python -m cli" if program.endswith(".py") else program
    command = NAME if shutil.which(NAME) else typed
    folder = os.path.relpath(str(examples))
    commands = (
        ("all examples, in words", f"translate -f {folder} --snapshot {folder}/cluster -o text"),
        ("all mistakes", f"translate -f {folder}/mistakes -o text"),
        (
            "another driver",
            f"translate -f {folder}/whole-gpu.yaml --profile nvidia=gpu.example.com",
        ),
        (
            "where pods would go, and what keeps one from it",
            f"simulate -f {folder}/busy/pods.yaml --snapshot {folder}/busy/cluster.yaml",
        ),
        (
            "why a pod waits",
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
